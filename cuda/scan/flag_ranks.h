// Numbers the flagged ones of n items in order: keeps the flags, and counts the flags before each item. Only
// .cu files include this header.
#ifndef SOK_CUDA_SCAN_FLAG_RANKS_H_
#define SOK_CUDA_SCAN_FLAG_RANKS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"

namespace sok {

// Prefix sums over the lanes of a warp. For kernels: only .cu files include this header.

// The sum of `value` over this lane and those before it. All 32 lanes of the warp must call it.
__device__ __forceinline__ int32_t InclusiveSumInWarp(int32_t value) {
  const unsigned lane = threadIdx.x % 32;
  for (unsigned delta = 1; delta < 32; delta *= 2) {
    const int32_t other = __shfl_up_sync(kAllLanes, value, delta);
    if (lane >= delta) value += other;
  }
  return value;
}

// A scan of a small array.

// Replaces values[i] by the sum of those before it; values[n] are on the device, and their sum fits int32.
// One block computes it: for arrays of a few thousand values, such as counts of tiles.
Status ExclusiveSum(cudaStream_t stream, int32_t* values, int64_t n);

// The flags are bits, with a count for each word and one for each tile of words: any thread finds the number
// of any flag with two small loads, and no array of numbers has to be written and read.
struct alignas(8) FlagWord {
  uint32_t bits;
  int32_t before;  // flags before the word in its tile
};
constexpr int kFlagsPerTile = 1024;

// The view with which kernels number flags.
class FlagRanks {
 public:
  FlagRanks(const FlagWord* words, const int32_t* tiles) : words_(words), tiles_(tiles) {}

  __device__ __forceinline__ bool IsFlagged(int64_t i) const {
    return (words_[i / 32].bits >> (i % 32) & 1) != 0;
  }

  // How many of [0, i) are flagged, for i in [0, n].
  __device__ __forceinline__ int32_t Before(int64_t i) const {
    const FlagWord word = words_[i / 32];
    return tiles_[i / kFlagsPerTile] + word.before + __popc(word.bits & ((1u << (i % 32)) - 1));
  }

 private:
  const FlagWord* words_;
  const int32_t* tiles_;  // flags before each tile
};

// The memory behind FlagRanks.
struct RankedFlags {
  DeviceBuffer<FlagWord> words;
  DeviceBuffer<int32_t> tiles;

  FlagRanks ranks() const { return FlagRanks(words.data(), tiles.data()); }
};

namespace flag_ranks_internal {

constexpr int kThreads = 256;
constexpr int kWordsPerTile = kFlagsPerTile / 32;
static_assert(kWordsPerTile == 32, "one warp counts the words of a tile");

// The number of resident blocks to compile for: enough to saturate memory. Without it, ptxas would keep more
// blocks resident and spill the registers of a flag that needs many.
constexpr int kResidentBlocks = 6;

// One block per tile.
template <typename Flag>
__global__ __launch_bounds__(kThreads, ResidentBlocks(kResidentBlocks, kThreads)) void FlagTileKernel(
    int64_t n, Flag flag, FlagWord* words, int32_t* tiles) {
  AwaitPreviousKernels();
  __shared__ uint32_t bits[kWordsPerTile];
  const int64_t tile = blockIdx.x;
  for (int at = static_cast<int>(threadIdx.x); at < kFlagsPerTile; at += kThreads) {
    const int64_t i = tile * kFlagsPerTile + at;
    const uint32_t ballot = __ballot_sync(kAllLanes, i < n && flag(i));
    if (at % 32 == 0) bits[at / 32] = ballot;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const uint32_t own = bits[threadIdx.x];
  const int32_t through = InclusiveSumInWarp(__popc(own));
  words[tile * kWordsPerTile + threadIdx.x] = {own, through - __popc(own)};
  if (threadIdx.x == 31) tiles[tile] = through;
}

}  // namespace flag_ranks_internal

// Calls flag(i) once for each i in [0, n), in any order, and ranks what it returns. n < 2^31. `what` is the
// name of the work, for errors. The memory comes from `allocator`.
template <typename Flag>
Status RankFlags(const char* what, cudaStream_t stream, DeviceAllocator* allocator, int64_t n,
                 const Flag& flag, RankedFlags* ranked) {
  // One tile more than the full ones, so that Before(n) exists.
  const int64_t tiles = n / kFlagsPerTile + 1;
  SOK_ASSIGN_OR_RETURN(ranked->words, DeviceBuffer<FlagWord>::Allocate(
                                          allocator, stream, tiles * flag_ranks_internal::kWordsPerTile));
  SOK_ASSIGN_OR_RETURN(ranked->tiles, DeviceBuffer<int32_t>::Allocate(allocator, stream, tiles));
  SOK_RETURN_IF_ERROR(Launch(what, stream, {tiles, flag_ranks_internal::kThreads, 0},
                             flag_ranks_internal::FlagTileKernel<Flag>, n, flag, ranked->words.data(),
                             ranked->tiles.data()));
  return ExclusiveSum(stream, ranked->tiles.data(), tiles);
}

}  // namespace sok

#endif  // SOK_CUDA_SCAN_FLAG_RANKS_H_
