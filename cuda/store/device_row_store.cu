#include <algorithm>
#include <memory>
#include <utility>

#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
#include "cuda/store/device_row_store.h"
#include "cuda/store/record_numbers.h"
#include "cuda/store/row_kernels.h"
#include "cuda/store/row_store_view.h"

namespace sok {
namespace {

constexpr int64_t kMaxFloats = int64_t{1} << 40;

// Of a table with a disk.
constexpr int64_t kMostRowsOfPiece = int64_t{1} << 18;

// A record starts at a multiple of 16 bytes. So it touches as few sectors of 32 bytes as its length allows: a
// record with at most 4 floats in its last sector does so at any multiple of 16 bytes, and other records have
// strides of whole sectors.
int64_t RecordBytes(const RecordLayout& layout) { return (layout.bytes() + 15) / 16 * 16; }

__global__ void __launch_bounds__(kThreadsPerBlock) FillKernel(float* to, int64_t n, float value) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) to[i] = value;
}

// Copies the weights of the rows [first, first + n), and fills their slots.
__global__ void __launch_bounds__(kThreadsPerBlock)
    MoveRowsKernel(const __grid_constant__ RowStoreView from, const __grid_constant__ RowStoreView to,
                   int64_t first, int64_t n, int lane_bits) {
  AwaitPreviousKernels();
  const Lanes lanes(lane_bits);
  for (int64_t row = first + lanes.first(); row < first + n; row += lanes.step()) {
    const float* const old_record = from.FloatsOf(row);
    float* const record = to.FloatsOf(row);
    for (int64_t c = lanes.lane(); c < to.width; c += lanes.count()) {
      record[c] = c < to.dim ? old_record[c] : to.fills[c - to.dim];
    }
  }
}

// The same for records with numbers in 16 bits.
__global__ void __launch_bounds__(kThreadsPerBlock)
    MoveRoundedRowsKernel(RowStoreView from, RowStoreView to, int64_t first, int64_t n, int lane_bits) {
  AwaitPreviousKernels();
  const Lanes lanes(lane_bits);
  const int64_t weight_halves = to.dim * (BytesOf(to.shape.weight_type()) / 2);
  const int64_t wide_slots = to.width - to.dim - to.shape.row_slots;
  for (int64_t row = first + lanes.first(); row < first + n; row += lanes.step()) {
    const auto* const old_halves = reinterpret_cast<const uint16_t*>(from.Record(row));
    char* const record = to.Record(row);
    auto* const halves = reinterpret_cast<uint16_t*>(record);
    for (int64_t i = lanes.lane(); i < weight_halves; i += lanes.count()) halves[i] = old_halves[i];
    char* const slots = record + to.shape.SlotsAt(to.dim);
    for (int64_t i = lanes.lane(); i < wide_slots; i += lanes.count()) {
      SetNumberAt(to.shape.slot_type(), slots, i, to.fills[i]);
    }
    auto* const row_slots = reinterpret_cast<float*>(record + to.shape.RowSlotsAt(to.dim, to.width));
    for (int64_t i = lanes.lane(); i < to.shape.row_slots; i += lanes.count()) {
      row_slots[i] = to.fills[wide_slots + i];
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

// Brings the rows of a piece from the disk, if there is one, in a call of their own.
Status BringPiece(cudaStream_t stream, DeviceAllocator* scratch, DeviceTiers* tiers, const RowList& piece,
                  DiskUse use) {
  if (tiers == nullptr || tiers->disk() == nullptr) return OkStatus();
  tiers->disk()->BeginCall();
  const RowsOnDisk needed = {tiers, piece, use == DiskUse::kNew ? piece.n : 0};
  int64_t failed = 0;
  return BringFromDisk(stream, scratch, Span<const RowsOnDisk>(&needed, 1), use, &failed);
}

RowStoreView ViewOf(const SlabsView& view, int64_t dim, const RecordLayout& layout, const float* fills) {
  RowStoreView rows;
  rows.slabs = view.slabs;
  rows.mask = view.mask;
  rows.record_bytes = view.record_bytes;
  rows.dim = dim;
  rows.width = layout.floats();
  rows.fills = fills;
  rows.bits = view.bits;
  rows.shape = layout.shape();
  return rows;
}

}  // namespace

DeviceRowStore::DeviceRowStore(int64_t dim, DeviceAllocator* rows, DeviceAllocator* device,
                               int64_t slab_bytes, const RecordFormat& format, const TierOptions& tiers)
    : dim_(dim),
      layout_(dim, format),
      row_allocator_(rows),
      device_allocator_(device),
      slab_bytes_(slab_bytes),
      tier_options_(tiers),
      records_(MakeRecords(layout_)) {}

DeviceRowStore::Records DeviceRowStore::MakeRecords(const RecordLayout& layout) const {
  const int64_t bytes = RecordBytes(layout);
  Records records = {
      DeviceSlabs(bytes, DeviceSlabs::Fresh::kAnything, row_allocator_, device_allocator_, slab_bytes_),
      nullptr};
  if (tier_options_.has_tiers()) {
    records.tiers =
        std::make_unique<DeviceTiers>(tier_options_, bytes, device_allocator_, row_allocator_, slab_bytes_);
  }
  return records;
}

RowStoreView DeviceRowStore::view() const { return ViewOf(records_.view(), dim_, layout_, fills_.data()); }

Status DeviceRowStore::SetSlots(cudaStream_t stream, Span<const SlotSpec> slots, int64_t rows,
                                WriteKeys write_keys) {
  int64_t width = dim_;
  std::vector<int64_t> offsets;
  for (const SlotSpec& slot : slots) {
    if (slot.width < 1 || slot.width > kMaxFloats) {
      return InvalidArgument("a slot of a row must be at least 1 float wide, got ", slot.width);
    }
    offsets.push_back(width);
    width += slot.width;
  }
  SOK_ASSIGN_OR_RETURN(DeviceBuffer<float> fills, MakeFills(stream, slots, width - dim_, device_allocator_));
  const RecordLayout layout(dim_, layout_.format(), slots);
  Records next = MakeRecords(layout);
  if (TierDisk* const disk = records_.disk(); disk != nullptr) {
    SOK_RETURN_IF_ERROR(next.tiers->AddDisk());
    next.disk()->set_executor(disk->executor());
  }
  SOK_RETURN_IF_ERROR(next.Reserve(stream, records_.size()));
  const RowStoreView to = ViewOf(next.view(), dim_, layout, fills.data());
  const int64_t most = std::min(PieceOf(rows), next.PieceOf(rows));
  SOK_RETURN_IF_ERROR(ForEachPiece(stream, rows, most, DiskUse::kStep, [&](const RowList& piece) -> Status {
    SOK_RETURN_IF_ERROR(BringPiece(stream, device_allocator_, next.tiers.get(), piece, DiskUse::kNew));
    SOK_RETURN_IF_ERROR(MoveRows(stream, to, layout, piece));
    return write_keys(to, piece);
  }));
  if (records_.disk() != nullptr) {
    // Kernels still read pinned memory of the disk, which ends with it.
    SOK_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream), "cannot wait for the device");
  }
  slots_.assign(slots.begin(), slots.end());
  slot_offsets_ = std::move(offsets);
  layout_ = layout;
  if (next.tiers != nullptr) next.tiers->TakeCounts(records_.tiers.get());
  records_.set_stream(stream);
  records_ = std::move(next);
  fills_.set_stream(stream);
  fills_ = std::move(fills);
  return OkStatus();
}

Status DeviceRowStore::MoveRows(cudaStream_t stream, const RowStoreView& to, const RecordLayout& layout,
                                const RowList& piece) const {
  const int lane_bits = LanesLog2(to.width, /*width=*/1);
  return Launch("SetSlots", stream, ShapeFor(piece.n, 1 << lane_bits),
                layout.is_plain() ? MoveRowsKernel : MoveRoundedRowsKernel, view(), to, piece.first, piece.n,
                lane_bits);
}

int64_t DeviceRowStore::Records::PieceOf(int64_t rows) const {
  return disk() == nullptr ? rows : std::min({rows, disk()->limit(), kMostRowsOfPiece});
}

Status DeviceRowStore::ForEachPiece(cudaStream_t stream, int64_t rows, int64_t most, DiskUse use,
                                    FunctionRef<Status(const RowList& piece)> visit) {
  for (int64_t first = 0; first < rows; first += most) {
    const RowList piece = {nullptr, first, std::min(most, rows - first)};
    SOK_RETURN_IF_ERROR(BringPiece(stream, device_allocator_, tiers(), piece, use));
    SOK_RETURN_IF_ERROR(visit(piece));
  }
  return OkStatus();
}

namespace {

// kRounded: whether the records have numbers in 16 bits.
template <bool kRounded>
__global__ void __launch_bounds__(kThreadsPerBlock)
    StartRowsKernel(RowStoreView store, Initializer initializer, uint64_t seed, const int64_t* keys,
                    const int64_t* rows, int64_t n, int lane_bits) {
  AwaitPreviousKernels();
  const Lanes lanes(lane_bits);
  for (int64_t i = lanes.first(); i < n; i += lanes.step()) {
    if (rows[i] < 0) continue;
    const RowStart start = StartOf(store, initializer, keys[i], rows[i]);
    if constexpr (kRounded) {
      WriteRoundedStart(store, initializer, start.record, start.given, start.state, lanes.lane(),
                        lanes.count());
      if (lanes.lane() == 0) WriteStream(store, seed, keys[i], start.record);
    } else {
      WriteStart(store, initializer, start, lanes.lane(), lanes.count());
    }
  }
}

}  // namespace

Status StartRows(cudaStream_t stream, const RowStoreView& store, const Initializer& initializer,
                 uint64_t seed, const int64_t* keys, const int64_t* rows, int64_t n) {
  const int lane_bits = LanesLog2(store.width, /*width=*/4);
  return Launch("StartRows", stream, ShapeFor(n, 1 << lane_bits),
                store.shape.is_plain() ? StartRowsKernel<false> : StartRowsKernel<true>, store, initializer,
                seed, keys, rows, n, lane_bits);
}

}  // namespace sok
