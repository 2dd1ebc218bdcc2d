// Launchers of kernels, each with one mistake, and of two without.
#ifndef SOK_CUDA_ON_HOST_TESTING_PLANTED_KERNELS_H_
#define SOK_CUDA_ON_HOST_TESTING_PLANTED_KERNELS_H_

#include <cuda_runtime.h>

namespace sok::on_host {

constexpr int kPlantedThreads = 128;
constexpr int kPlantedBlocks = 4;
using PlantedKernel = void (*)(int* data, int n);

// APPLY(name, kernel, blocks) for each.
#define SOK_PLANTED_KERNELS(APPLY)                          \
  APPLY(PastEnd, PastEnd, 1)                                \
  APPLY(PastDynamicShared, PastDynamicShared, 1)            \
  APPLY(PastStaticShared, PastStaticShared, 1)              \
  APPLY(MisalignedVector, MisalignedVector, 1)              \
  APPLY(MisalignedAtomic, MisalignedAtomic, 1)              \
  APPLY(ReadsUnwritten, ReadsUnwritten, 1)                  \
  APPLY(ReadsUnwrittenShared, ReadsUnwrittenShared, 1)      \
  APPLY(LocalOfAnotherThread, LocalOfAnotherThread, 1)      \
  APPLY(StackOverflow, StackOverflow, 1)                    \
  APPLY(DivergentBarrier, DivergentBarrier, 1)              \
  APPLY(TwoBarriers, TwoBarriers, 1)                        \
  APPLY(BarrierAfterReturn, BarrierAfterReturn, 1)          \
  APPLY(MasksDiffer, MasksDiffer, 1)                        \
  APPLY(LaneMissing, LaneMissing, 1)                        \
  APPLY(LaneNotInMask, LaneNotInMask, 1)                    \
  APPLY(ReadsLaneOutsideMask, ReadsLaneOutsideMask, 1)      \
  APPLY(NoBarrier, NoBarrier, kPlantedBlocks)               \
  APPLY(InStep, InStep, kPlantedBlocks)                     \
  APPLY(LostUpdates, LostUpdates, kPlantedBlocks)           \
  APPLY(LostPlainUpdates, LostPlainUpdates, kPlantedBlocks) \
  APPLY(PublishTooEarly, Publish<true>, kPlantedBlocks)     \
  APPLY(PublishRelaxed, Publish<false>, kPlantedBlocks)     \
  APPLY(ScopeOfBlock, ScopeOfBlock, kPlantedBlocks)         \
  APPLY(NeverEnds, NeverEnds, 1)                            \
  APPLY(NeverWaits, NeverWaits, 1)                          \
  APPLY(ReadsBeforeItWaits, ReadsBeforeItWaits, 1)          \
  APPLY(AddsBeforeItWaits, AddsBeforeItWaits, 1)            \
  APPLY(Slow, Slow, 1)

#define SOK_PLANTED(NAME, KERNEL, BLOCKS) cudaError_t Launch##NAME(cudaStream_t stream, int* data, int n);
SOK_PLANTED_KERNELS(SOK_PLANTED)
#undef SOK_PLANTED

// to[i] = from[i], for kPlantedThreads elements.
cudaError_t LaunchCopy(cudaStream_t stream, int* to, const int* from);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_TESTING_PLANTED_KERNELS_H_
