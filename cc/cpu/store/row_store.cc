#include "cc/cpu/store/row_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sok {
namespace {

// Bytes of a slab without slots. Slots make slabs larger but do not change the rows per slab. Slabs are small
// enough that SetSlots, which copies one slab at a time, needs little memory beside the table.
constexpr int64_t kSlabBytes = int64_t{16} << 20;
constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kMaxFloats = int64_t{1} << 40;

// Records longer than a cache line touch as few lines as their length allows, at any position. Let a record
// that starts on a line boundary fill r of the 16 floats of its last line. It touches no more lines when it
// starts at any multiple of a power of two a >= r. So the stride is a multiple of the smallest such a, and of
// 4 floats, for vector loads: 64 weights and a slot of one float take 68 floats, not 80. Shorter records are
// packed to 16 bytes: half of the 48-byte records then span two lines, but the table has fewer lines. Records
// with numbers in 16 bits are there to be small, and need a multiple of 2 only.
int64_t Stride(const RecordLayout& layout) {
  const int64_t floats = layout.bytes() / kFloatBytes;
  const int64_t into_line = (floats - 1) % 16 + 1;
  int64_t multiple = layout.is_plain() ? 4 : 2;
  while (floats > 16 && multiple < into_line) multiple *= 2;
  return (floats + multiple - 1) / multiple * multiple;
}

}  // namespace

RowStore::RowStore(int64_t dim, const RecordFormat& format)
    : dim_(dim),
      layout_(dim, format),
      stride_(Stride(layout_)),
      slabs_(stride_ * kFloatBytes, Slabs::BitsFor(stride_ * kFloatBytes, kSlabBytes)) {}

Status RowStore::AddDisk(const TierOptions& options) {
  SOK_ASSIGN_OR_RETURN(std::unique_ptr<RowTiers> tiers, RowTiers::Create(options, slabs_.record_bytes()));
  tier_options_ = options;
  tiers_ = std::move(tiers);
  return OkStatus();
}

Status RowStore::Reserve(int64_t rows) {
  return tiers_ == nullptr ? slabs_.Reserve(rows) : tiers_->Reserve(rows);
}

Status RowStore::ReserveWith(int64_t rows, PlaceBytes place) {
  // Records are rows of the array, without padding.
  stride_ = dim_;
  slabs_ = Slabs(dim_ * kFloatBytes, Slabs::BitsFor(dim_ * kFloatBytes, kSlabBytes));
  return slabs_.ReserveWith(rows, place);
}

Status RowStore::SetSlots(Span<const SlotSpec> slots, Executor& executor,
                          FunctionRef<int64_t(int64_t row)> key) {
  RowStore next(dim_, layout_.format());
  int64_t floats = dim_;
  for (const SlotSpec& slot : slots) {
    if (slot.width < 1 || slot.width > kMaxFloats) {
      return InvalidArgument("a slot of a row must be at least 1 float wide, got ", slot.width);
    }
    next.slot_offsets_.push_back(floats);
    floats += slot.width;
  }
  next.slots_.assign(slots.begin(), slots.end());
  next.layout_ = RecordLayout(dim_, layout_.format(), slots);
  next.stride_ = Stride(next.layout_);
  next.step_ = step_;
  next.slabs_ = Slabs(next.stride_ * kFloatBytes, slabs_.slab_bits());
  if (tiers_ != nullptr) SOK_RETURN_IF_ERROR(next.AddDisk(tier_options_));
  // Reserves all address space first, so that without a disk nothing can fail once rows are moved.
  SOK_RETURN_IF_ERROR(next.Reserve(rows()));
  SOK_RETURN_IF_ERROR(MoveRows(executor, key, &next));
  *this = std::move(next);
  return OkStatus();
}

Status RowStore::MoveRows(Executor& executor, FunctionRef<int64_t(int64_t row)> key, RowStore* to) {
  const auto move = [&](int64_t row) {
    std::memcpy(to->record(row), record(row), layout_.weight_bytes());
    to->FillSlots(row);
    to->SetKey(row, key(row));
  };
  if (tiers_ == nullptr) {
    for (int64_t row = 0; row < rows(); ++row) {
      move(row);
      if ((row + 1) % slabs_.records_per_slab() == 0) slabs_.Release(row >> slabs_.slab_bits());
    }
    return OkStatus();
  }
  const int64_t most = std::min(tiers_->limit(), to->tiers_->limit());
  std::vector<int64_t> piece;
  for (int64_t row = 0; row < rows(); ++row) {
    if (tiers_->is_known(row)) piece.push_back(row);
    if (static_cast<int64_t>(piece.size()) < most && row + 1 < rows()) continue;
    for (RowStore* const store : {this, to}) store->BeginCall();
    SOK_RETURN_IF_ERROR(BringUp(executor, piece, RowUse::kScan));
    SOK_RETURN_IF_ERROR(to->BringUp(executor, piece, RowUse::kNew));
    for (const int64_t moved : piece) move(moved);
    piece.clear();
  }
  to->BeginCall();
  return OkStatus();
}

void RowStore::FillSlots(int64_t row) { layout_.FillSlots(slots_, record(row)); }

}  // namespace sok
