#include "cc/store/row_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sok {
namespace {

// Weights alone; with slots the slabs get larger and the rows in them stay the same. Small enough that
// laying a table out anew, slab by slab, needs little beside it.
constexpr int64_t kSlabBytes = int64_t{16} << 20;
constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kMaxFloats = int64_t{1} << 40;

// Records of more than a line touch as few lines as their length allows, wherever they lie: one of n floats
// ends r floats into a line, r = 1 ... 16, when it starts on one, and no deeper than a whole line when it
// starts on any multiple of a >= r. So the stride is a multiple of the least such power of two, and at least
// 4, which vector loads like better: a slot of one float beside 64 weights makes 68 floats of them and
// not 80. Shorter records are packed to 16 bytes: half of those of 48 bytes lie on two lines, but a table of
// them fills fewer.
int64_t Stride(int64_t floats) {
  const int64_t into_line = (floats - 1) % 16 + 1;
  int64_t multiple = 4;
  while (floats > 16 && multiple < into_line) multiple *= 2;
  return (floats + multiple - 1) / multiple * multiple;
}

}  // namespace

RowStore::RowStore(int64_t dim)
    : dim_(dim),
      stride_(Stride(dim)),
      slabs_(stride_ * kFloatBytes, Slabs::BitsFor(stride_ * kFloatBytes, kSlabBytes)) {}

Status RowStore::Reserve(int64_t rows) { return slabs_.Reserve(rows); }

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
  const int64_t stride = Stride(floats);
  // All address space first, so that nothing can fail once the rows are on their way.
  Slabs next(stride * kFloatBytes, slabs_.slab_bits());
  SOK_RETURN_IF_ERROR(next.Reserve(slabs_.size()));

  slots_.assign(slots.begin(), slots.end());
  slot_offsets_ = std::move(offsets);
  stride_ = stride;
  std::swap(slabs_, next);
  for (int64_t row = 0; row < slabs_.size(); ++row) {
    std::memcpy(weights(row), next.at(row), dim_ * kFloatBytes);
    FillSlots(row);
    if ((row + 1) % slabs_.records_per_slab() == 0) next.Release(row >> slabs_.slab_bits());
  }
  return OkStatus();
}

void RowStore::FillSlots(int64_t row) {
  float* to = weights(row) + dim_;
  for (const SlotSpec& slot : slots_) {
    std::fill(to, to + slot.width, slot.fill);
    to += slot.width;
  }
}

}  // namespace sok
