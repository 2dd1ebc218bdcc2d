#include <utility>

#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
#include "cuda/store/device_row_store.h"
#include "cuda/store/lanes.h"
#include "cuda/store/row_store_view.h"
#include "cuda/store/start_row.h"

namespace sok {
namespace {

constexpr int64_t kMaxFloats = int64_t{1} << 40;

// A record starts at a multiple of 16 bytes. So it touches as few sectors of 32 bytes as its length allows: a
// record with at most 4 floats in its last sector does so at any multiple of 16 bytes, and other records have
// strides of whole sectors.
int64_t StrideOf(int64_t floats) { return (floats + 3) / 4 * 4; }

__global__ void __launch_bounds__(kThreadsPerBlock) FillKernel(float* to, int64_t n, float value) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) to[i] = value;
}

// Copies the weights of the rows [0, rows), and fills their slots.
__global__ void __launch_bounds__(kThreadsPerBlock)
    MoveRowsKernel(RowStoreView from, RowStoreView to, int64_t rows, int lane_bits) {
  const Lanes lanes(lane_bits);
  for (int64_t row = lanes.first(); row < rows; row += lanes.step()) {
    const float* const old_record = from.Record(row);
    float* const record = to.Record(row);
    for (int64_t c = lanes.lane(); c < to.width; c += lanes.count()) {
      record[c] = c < to.dim ? old_record[c] : to.fills[c - to.dim];
    }
  }
}

// The fills of all slots, one after another.
StatusOr<DeviceBuffer<float>> MakeFills(cudaStream_t stream, Span<const SlotSpec> slots, int64_t floats,
                                        DeviceAllocator* allocator) {
  StatusOr<DeviceBuffer<float>> fills = DeviceBuffer<float>::Allocate(allocator, stream, floats);
  if (!fills.ok()) return fills.status();
  float* to = fills.value().data();
  for (const SlotSpec& slot : slots) {
    SOK_RETURN_IF_ERROR(
        Launch("FillSlots", stream, ShapeFor(slot.width), FillKernel, to, slot.width, slot.fill));
    to += slot.width;
  }
  return fills;
}

RowStoreView ViewOf(const DeviceSlabs& slabs, int64_t dim, int64_t width, const float* fills) {
  const SlabsView view = slabs.view();
  RowStoreView rows;
  rows.slabs = view.slabs;
  rows.mask = view.mask;
  rows.stride = view.record_bytes / static_cast<int64_t>(sizeof(float));
  rows.dim = dim;
  rows.width = width;
  rows.fills = fills;
  rows.bits = view.bits;
  return rows;
}

DeviceSlabs SlabsOf(int64_t width, DeviceAllocator* rows, DeviceAllocator* device, int64_t slab_bytes) {
  return DeviceSlabs(StrideOf(width) * static_cast<int64_t>(sizeof(float)), DeviceSlabs::Fresh::kAnything,
                     rows, device, slab_bytes);
}

}  // namespace

DeviceRowStore::DeviceRowStore(int64_t dim, DeviceAllocator* rows, DeviceAllocator* device,
                               int64_t slab_bytes)
    : dim_(dim),
      width_(dim),
      row_allocator_(rows),
      device_allocator_(device),
      slab_bytes_(slab_bytes),
      slabs_(SlabsOf(dim, rows, device, slab_bytes)) {}

RowStoreView DeviceRowStore::view() const { return ViewOf(slabs_, dim_, width_, fills_.data()); }

Status DeviceRowStore::SetSlots(cudaStream_t stream, Span<const SlotSpec> slots, int64_t rows) {
  int64_t width = dim_;
  std::vector<int64_t> offsets;
  for (const SlotSpec& slot : slots) {
    if (slot.width < 1 || slot.width > kMaxFloats) {
      return InvalidArgument("a slot of a row must be at least 1 float wide, got ", slot.width);
    }
    offsets.push_back(width);
    width += slot.width;
  }
  StatusOr<DeviceBuffer<float>> fills = MakeFills(stream, slots, width - dim_, device_allocator_);
  if (!fills.ok()) return fills.status();
  DeviceSlabs next = SlabsOf(width, row_allocator_, device_allocator_, slab_bytes_);
  SOK_RETURN_IF_ERROR(next.Reserve(stream, slabs_.size()));
  const int lane_bits = LanesLog2(width, /*width=*/1);
  SOK_RETURN_IF_ERROR(Launch("SetSlots", stream, ShapeFor(rows, 1 << lane_bits), MoveRowsKernel, view(),
                             ViewOf(next, dim_, width, fills.value().data()), rows, lane_bits));
  slots_.assign(slots.begin(), slots.end());
  slot_offsets_ = std::move(offsets);
  width_ = width;
  slabs_.set_stream(stream);
  slabs_ = std::move(next);
  fills_.set_stream(stream);
  fills_ = std::move(fills.value());
  return OkStatus();
}

namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    StartRowsKernel(RowStoreView store, Initializer initializer, const int64_t* keys, const int64_t* rows,
                    int64_t n, int lane_bits) {
  const Lanes lanes(lane_bits);
  for (int64_t i = lanes.first(); i < n; i += lanes.step()) {
    if (rows[i] < 0) continue;
    const RowStart start = StartOf(store, initializer, keys[i], rows[i]);
    WriteStart(store, initializer, start, lanes.lane(), lanes.count());
  }
}

}  // namespace

Status StartRows(cudaStream_t stream, const RowStoreView& store, const Initializer& initializer,
                 const int64_t* keys, const int64_t* rows, int64_t n) {
  const int lane_bits = LanesLog2(store.width, /*width=*/4);
  return Launch("StartRows", stream, ShapeFor(n, 1 << lane_bits), StartRowsKernel, store, initializer, keys,
                rows, n, lane_bits);
}

}  // namespace sok
