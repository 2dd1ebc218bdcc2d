// Positions of threads, barriers, and the collective operations of a warp's lanes.
//
// The engine is stricter than the hardware, as CUDA's documents advise: a barrier waits for all threads of a
// block and a warp function for all lanes of its mask, and a thread or lane that has already left the kernel
// is reported.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_WARP_H_
#define SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_WARP_H_

#include "cuda_on_host/engine.h"

extern __thread uint3 threadIdx, blockIdx;
extern __thread dim3 blockDim, gridDim;
constexpr int warpSize = 32;

inline void cudaGridDependencySynchronize() { sok::on_host::AwaitPreviousGrids(); }
inline void cudaTriggerProgrammaticLaunchCompletion() {}

inline void __syncthreads(SOK_CALLED_AT) { sok::on_host::BlockBarrier(place); }
inline void __syncwarp(unsigned mask = 0xffffffffu, SOK_CALLED_AT) {
  sok::on_host::WarpCollective(sok::on_host::Collective::kSync, mask, 0, 0, place);
}

namespace sok::on_host {

constexpr uint64_t kGarbage = 0x7fbadbad7fbadbadu;

// A shuffle from a lane that is computed from the calling one. A lane outside the mask gives garbage, as its
// value is undefined in CUDA: a reduction over fewer lanes may read and ignore it.
template <typename T>
T ShuffleFrom(unsigned mask, T value, int source, Place place) {
  const bool known = (mask >> source & 1) != 0;
  const uint64_t bits =
      WarpCollective(Collective::kShuffle, mask, ToBits(value), known ? source : Lane(), place);
  return FromBits<T>(known ? bits : kGarbage);
}

// The widths that a shuffle may have.
inline void CheckWidth(int width, Place place) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    Report(place, "a shuffle of width %d, which is not a power of two up to 32", width);
  }
}

template <typename T>
T ShuffleIndexed(unsigned mask, T value, int source, int width, Place place) {
  CheckWidth(width, place);
  const int from = Lane() / width * width + (source & (width - 1));
  return FromBits<T>(WarpCollective(Collective::kShuffle, mask, ToBits(value), from, place));
}

template <typename T>
T ShuffleUp(unsigned mask, T value, unsigned delta, int width, Place place) {
  CheckWidth(width, place);
  const int lane = Lane();
  const bool within = static_cast<unsigned>(lane % width) >= delta;
  return ShuffleFrom(mask, value, within ? lane - static_cast<int>(delta) : lane, place);
}

template <typename T>
T ShuffleDown(unsigned mask, T value, unsigned delta, int width, Place place) {
  CheckWidth(width, place);
  const int lane = Lane();
  const bool within = static_cast<unsigned>(lane % width) + uint64_t{delta} < static_cast<unsigned>(width);
  return ShuffleFrom(mask, value, within ? lane + static_cast<int>(delta) : lane, place);
}

template <typename T>
T ShuffleXor(unsigned mask, T value, int lane_mask, int width, Place place) {
  CheckWidth(width, place);
  const int lane = Lane();
  const int source = (lane ^ lane_mask) & 31;
  // Reading from an earlier group of lanes is allowed, from a later one not.
  return ShuffleFrom(mask, value, source / width <= lane / width ? source : lane, place);
}

}  // namespace sok::on_host

// The types that CUDA shuffles, and no others: a call with another type must not compile here either.
#define SOK_SHUFFLES(T)                                                                              \
  inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, SOK_CALLED_AT) {          \
    return sok::on_host::ShuffleIndexed(mask, value, source, width, place);                          \
  }                                                                                                  \
  inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SOK_CALLED_AT) {   \
    return sok::on_host::ShuffleUp(mask, value, delta, width, place);                                \
  }                                                                                                  \
  inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SOK_CALLED_AT) { \
    return sok::on_host::ShuffleDown(mask, value, delta, width, place);                              \
  }                                                                                                  \
  inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, SOK_CALLED_AT) {   \
    return sok::on_host::ShuffleXor(mask, value, lane_mask, width, place);                           \
  }
// The lanes with the same bits.
#define SOK_MATCHES(T)                                                                                   \
  inline unsigned __match_any_sync(unsigned mask, T value, SOK_CALLED_AT) {                              \
    return static_cast<unsigned>(sok::on_host::WarpCollective(sok::on_host::Collective::kMatchAny, mask, \
                                                              sok::on_host::ToBits(value), 0, place));   \
  }
#define SOK_FOR_WARP_TYPES(APPLY) \
  APPLY(int)                      \
  APPLY(unsigned)                 \
  APPLY(long)                     \
  APPLY(unsigned long)            \
  APPLY(long long)                \
  APPLY(unsigned long long)       \
  APPLY(float)                    \
  APPLY(double)
SOK_FOR_WARP_TYPES(SOK_SHUFFLES)
SOK_FOR_WARP_TYPES(SOK_MATCHES)
#undef SOK_FOR_WARP_TYPES
#undef SOK_MATCHES
#undef SOK_SHUFFLES

inline unsigned __ballot_sync(unsigned mask, int predicate, SOK_CALLED_AT) {
  return static_cast<unsigned>(
      sok::on_host::WarpCollective(sok::on_host::Collective::kBallot, mask, predicate != 0, 0, place));
}
inline int __any_sync(unsigned mask, int predicate, SOK_CALLED_AT) {
  return __ballot_sync(mask, predicate, place) != 0;
}

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_WARP_H_
