#include <algorithm>

#include "cc/base/hash.h"
#include "cc/optimizers/rules.h"
#include "cuda/shared_arithmetic.h"

namespace sok {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;

// Calls each(i) for every i in [0, n), with any grid size.
template <typename Each>
__global__ void ForEachKernel(int64_t n, Each each) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) each(i);
}

template <typename Each>
cudaError_t ForEach(cudaStream_t stream, int64_t n, const Each& each) {
  if (n == 0) return cudaSuccess;
  const int64_t blocks = std::min((n + kThreads - 1) / kThreads, kMaxBlocks);
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(blocks);
  config.blockDim = kThreads;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, ForEachKernel<Each>, n, each);
}

template <typename Rule, typename Step>
cudaError_t RunStep(cudaStream_t stream, const Step& step, const float* gradients, float* records,
                    int64_t stride, int64_t rows, int64_t dim) {
  return ForEach(stream, rows, [=] __device__(int64_t i) {
    ApplyToRow<Rule>(step, gradients + i * dim, records + i * stride, dim);
  });
}

template <typename Rule>
cudaError_t StepRows(cudaStream_t stream, const float* hyper, const float* gradients, float* records,
                     int64_t stride, int64_t rows, int64_t dim) {
  cudaError_t status = cudaSuccess;
  WithStep<Rule>(hyper, [&](const auto& step) {
    status = RunStep<Rule>(stream, step, gradients, records, stride, rows, dim);
  });
  return status;
}

using StepRowsOfRule = cudaError_t (*)(cudaStream_t, const float*, const float*, float*, int64_t, int64_t,
                                       int64_t);

template <typename... Rules>
StepRowsOfRule FindRule(std::string_view name, RuleList<Rules...>) {
  StepRowsOfRule found = nullptr;
  ((found = name == Rules::kName ? StepRows<Rules> : found), ...);
  return found;
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

cudaError_t EvaluateStep(cudaStream_t stream, std::string_view rule, const float* hyper,
                         const float* gradients, float* records, int64_t stride, int64_t rows, int64_t dim) {
  const StepRowsOfRule step_rows = FindRule(rule, AllRules());
  if (step_rows == nullptr) return cudaErrorInvalidValue;
  return step_rows(stream, hyper, gradients, records, stride, rows, dim);
}

}  // namespace sok
