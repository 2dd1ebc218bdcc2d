// One launch for several parts of a group, its lookups or its tables, whose rows may have different lengths.
// Only .cu files include this header.
//
// A few lanes of a warp, a group of lanes, share a row. Each part gets blocks of its own, and says how many
// lanes its rows take. Descriptions of parts are the kernel's arguments: they need no memory and no copy.
//
//   template <...>
//   __global__ void __launch_bounds__(kThreadsPerBlock) SumRows(const __grid_constant__ PartBatch<MyPart>
//   batch) {
//     const auto& part = PartOfBlock(batch);
//     const LaneGroup group(part.place);
//     if (group.item() >= part.place.items) return;
//     ...
//
//   PartLauncher<MyPart> launcher("SumRows", stream, SumRows);
//   for (...) SOK_RETURN_IF_ERROR(launcher.Add(part, rows, LanesLog2(dim, /*width=*/4)));
//   return launcher.Launch();
#ifndef SOK_CUDA_BASE_PART_LAUNCH_H_
#define SOK_CUDA_BASE_PART_LAUNCH_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cc/base/host_device.h"
#include "cc/base/status.h"
#include "cuda/base/launch.h"

namespace sok {

// The logarithm of the number of lanes that share `floats` floats, `width` at a time: the smallest power of
// two that covers all, at most a warp.
inline int LanesLog2(int64_t floats, int width) {
  int log2 = 0;
  while ((1 << log2) < kLanesOfWarp && (int64_t{width} << log2) < floats) ++log2;
  return log2;
}

// A part's place in a launch. Every part's description has a member `place` of this type.
struct PartPlace {
  int64_t first_block = 0;
  int64_t items = 0;  // each is processed by a group of lanes
  int lanes_log2 = 0;
};

// The argument of a kernel.
template <typename Part>
struct PartBatch {
  // The arguments of a kernel are limited to 4 kB.
  static constexpr int kCapacity = (4096 - 64) / static_cast<int>(sizeof(Part));
  static_assert(kCapacity > 0 && std::is_trivially_copyable_v<Part> && alignof(Part) <= 16);

  SOK_HOST_DEVICE const Part& part(int i) const { return reinterpret_cast<const Part*>(bytes)[i]; }

  int parts = 0;
  // Storage for Parts, which need not have a default constructor.
  alignas(16) unsigned char bytes[kCapacity * sizeof(Part)];
};

// The part of this block: the last one that starts at or before it.
template <typename Part>
__device__ __forceinline__ const Part& PartOfBlock(const PartBatch<Part>& batch) {
  const int64_t block = blockIdx.x;
  int low = 0;
  int high = batch.parts;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (batch.part(middle).place.first_block <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return batch.part(low);
}

// The lanes that work on one item, of which this thread is one.
class LaneGroup {
 public:
  __device__ explicit LaneGroup(const PartPlace& place)
      : LaneGroup(place.lanes_log2, (blockIdx.x - place.first_block) * blockDim.x >> place.lanes_log2) {}
  // A group of this many lanes within one that works on `item`.
  __device__ LaneGroup(int lanes_log2, const LaneGroup& outer) : LaneGroup(lanes_log2, 0) {
    item_ = outer.item_;
  }

  __device__ int lanes() const { return lanes_; }
  __device__ int lane() const { return lane_; }
  // The number of the group in its block.
  __device__ int in_block() const { return in_block_; }
  // There is no work for the group if this is at least the part's `items`.
  __device__ int64_t item() const { return item_; }
  // The group's lanes in the warp, for functions of warps.
  __device__ unsigned mask() const {
    const unsigned all = lanes_ == kLanesOfWarp ? kAllLanes : (1u << lanes_) - 1;
    return all << (threadIdx.x % kLanesOfWarp - lane_);
  }
  // A barrier for the lanes of the group, after which each sees what the others wrote before it.
  __device__ void Sync() const { __syncwarp(mask()); }

 private:
  // `first_item`: that of the block's first group.
  __device__ LaneGroup(int lanes_log2, int64_t first_item)
      : lanes_(1 << lanes_log2),
        lane_(static_cast<int>(threadIdx.x) & (lanes_ - 1)),
        in_block_(static_cast<int>(threadIdx.x) >> lanes_log2),
        item_(first_item + in_block_) {}

  int lanes_;
  int lane_;
  int in_block_;
  int64_t item_;
};

// Collects parts and launches them, as many at a time as fit into a kernel's arguments.
template <typename Part>
class PartLauncher {
 public:
  PartLauncher(const char* what, cudaStream_t stream, void (*kernel)(PartBatch<Part>),
               int threads_per_block = kThreadsPerBlock)
      : what_(what), stream_(stream), kernel_(kernel), shape_{0, threads_per_block, 0} {}

  // A part of `items` items. A block of this part needs `shared_bytes` bytes of dynamic shared memory.
  Status Add(Part part, int64_t items, int lanes_log2, int64_t shared_bytes = 0) {
    const int64_t per_block = shape_.threads >> lanes_log2;
    const int64_t blocks = (items + per_block - 1) / per_block;
    if (blocks == 0) return OkStatus();
    if (batch_.parts == PartBatch<Part>::kCapacity || shape_.blocks + blocks > kMaxLaunchBlocks) {
      SOK_RETURN_IF_ERROR(Launch());
    }
    part.place = {shape_.blocks, items, lanes_log2};
    std::memcpy(batch_.bytes + batch_.parts++ * sizeof(Part), &part, sizeof(Part));
    shape_.blocks += blocks;
    shape_.shared_bytes = std::max(shape_.shared_bytes, shared_bytes);
    return OkStatus();
  }

  // Launches what was added.
  Status Launch() {
    const Status status = sok::Launch(what_, stream_, shape_, kernel_, batch_);
    shape_.blocks = 0;
    shape_.shared_bytes = 0;
    batch_.parts = 0;
    return status;
  }

 private:
  static constexpr int64_t kMaxLaunchBlocks = std::numeric_limits<int32_t>::max();

  const char* what_;
  cudaStream_t stream_;
  void (*kernel_)(PartBatch<Part>);
  LaunchShape shape_;
  PartBatch<Part> batch_;
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_PART_LAUNCH_H_
