#include <algorithm>
#include <utility>

#include "cc/base/hash.h"
#include "cc/optimizers/adadelta.h"
#include "cc/optimizers/adagrad.h"
#include "cc/optimizers/adagrad_decay.h"
#include "cc/optimizers/adam_step.h"
#include "cc/optimizers/adamax.h"
#include "cc/optimizers/ftrl.h"
#include "cc/optimizers/keras_rmsprop.h"
#include "cc/optimizers/momentum.h"
#include "cc/optimizers/nadam.h"
#include "cc/optimizers/rmsprop.h"
#include "cc/optimizers/sgd.h"
#include "cuda/shared_arithmetic.h"

namespace sok {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;

// Calls each(i) for every i in [0, n), whatever the grid.
template <typename Each>
__global__ void ForEachKernel(int64_t n, Each each) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) each(i);
}

template <typename Each>
cudaError_t ForEach(cudaStream_t stream, int64_t n, const Each& each) {
  if (n == 0) return cudaSuccess;
  const int64_t blocks = std::min((n + kThreads - 1) / kThreads, kMaxBlocks);
  ForEachKernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(n, each);
  return cudaGetLastError();
}

template <typename Rule, std::size_t... kSlot>
__device__ void Step(const Rule& rule, float gradient, float& weight, const DeviceSlots& slots, int64_t i,
                     std::index_sequence<kSlot...>) {
  rule(gradient, weight, slots.slot[kSlot][i]...);
}

}  // namespace

cudaError_t EvaluateMix64(cudaStream_t stream, const uint64_t* words, uint64_t* mixed, int64_t n) {
  return ForEach(stream, n, [=] __device__(int64_t i) { mixed[i] = Mix64(words[i]); });
}

cudaError_t EvaluateOwnerOf(cudaStream_t stream, const int64_t* keys, const KeyOwners& owners,
                            int32_t* owner_of, int64_t n) {
  return ForEach(stream, n, [=] __device__(int64_t i) { owner_of[i] = owners.OwnerOf(keys[i]); });
}

cudaError_t EvaluateRowOf(cudaStream_t stream, const int64_t* keys, const StaticRows& static_rows,
                          int64_t* rows, int64_t n) {
  return ForEach(stream, n, [=] __device__(int64_t i) { rows[i] = static_rows.RowOf(keys[i]); });
}

cudaError_t EvaluateInitialValue(cudaStream_t stream, const Initializer& initializer, const int64_t* keys,
                                 int64_t column, float* values, int64_t n) {
  return ForEach(stream, n,
                 [=] __device__(int64_t i) { values[i] = InitialValue(initializer, keys[i], column); });
}

cudaError_t EvaluateCatchUp(cudaStream_t stream, const AdamCatchUp<4>& catch_up, float* weights, float* m,
                            float* v, int64_t n) {
  return ForEach(stream, n, [=] __device__(int64_t i) { catch_up(weights[i], m[i], v[i]); });
}

template <typename Rule>
cudaError_t EvaluateStep(cudaStream_t stream, const Rule& rule, const float* gradients, float* weights,
                         const DeviceSlots& slots, int64_t n) {
  return ForEach(stream, n, [=] __device__(int64_t i) {
    Step(rule, gradients[i], weights[i], slots, i, std::make_index_sequence<Rule::kSlots>());
  });
}

#define SOK_INSTANTIATE_STEP(...)                                                                        \
  template cudaError_t EvaluateStep<__VA_ARGS__>(cudaStream_t, const __VA_ARGS__&, const float*, float*, \
                                                 const DeviceSlots&, int64_t)
SOK_INSTANTIATE_STEP(Sgd);
SOK_INSTANTIATE_STEP(Momentum<false>);
SOK_INSTANTIATE_STEP(Momentum<true>);
SOK_INSTANTIATE_STEP(KerasMomentum<false>);
SOK_INSTANTIATE_STEP(KerasMomentum<true>);
SOK_INSTANTIATE_STEP(Adagrad);
SOK_INSTANTIATE_STEP(AdagradDecay);
SOK_INSTANTIATE_STEP(Rmsprop);
SOK_INSTANTIATE_STEP(RmspropCentered);
SOK_INSTANTIATE_STEP(KerasRmsprop);
SOK_INSTANTIATE_STEP(KerasRmspropCentered);
SOK_INSTANTIATE_STEP(FtrlStep<true, true>);
SOK_INSTANTIATE_STEP(Adadelta);
SOK_INSTANTIATE_STEP(Adamax);
SOK_INSTANTIATE_STEP(Nadam);
SOK_INSTANTIATE_STEP(AdamStep);
#undef SOK_INSTANTIATE_STEP

}  // namespace sok
