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

Status RowStore::Reserve(int64_t rows) { return slabs_.Reserve(rows); }

Status RowStore::ReserveWith(int64_t rows, PlaceBytes place) {
  // Records are rows of the array, without padding.
  stride_ = dim_;
  slabs_ = Slabs(dim_ * kFloatBytes, Slabs::BitsFor(dim_ * kFloatBytes, kSlabBytes));
  return slabs_.ReserveWith(rows, place);
}

Status RowStore::SetSlots(Span<const SlotSpec> slots) {
  int64_t floats = dim_;
  std::vector<int64_t> offsets;
  for (const SlotSpec& slot : slots) {
    if (slot.width < 1 || slot.width > kMaxFloats) {
      return InvalidArgument("a slot of a row must be at least 1 float wide, got ", slot.width);
    }
    offsets.push_back(floats);
    floats += slot.width;
  }
  const RecordLayout layout(dim_, layout_.format(), slots);
  const int64_t stride = Stride(layout);
  // Reserve all address space first, so that nothing can fail once rows are moved.
  Slabs next(stride * kFloatBytes, slabs_.slab_bits());
  SOK_RETURN_IF_ERROR(next.Reserve(slabs_.size()));

  slots_.assign(slots.begin(), slots.end());
  slot_offsets_ = std::move(offsets);
  layout_ = layout;
  stride_ = stride;
  std::swap(slabs_, next);
  for (int64_t row = 0; row < slabs_.size(); ++row) {
    std::memcpy(record(row), next.at(row), layout_.weight_bytes());
    FillSlots(row);
    if ((row + 1) % slabs_.records_per_slab() == 0) next.Release(row >> slabs_.slab_bits());
  }
  return OkStatus();
}

void RowStore::FillSlots(int64_t row) { layout_.FillSlots(slots_, record(row)); }

}  // namespace sok
