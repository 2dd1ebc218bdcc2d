// Evaluates the arithmetic that CPU and GPU share on a device, with one thread per element or row.
//
// Hashing, initial values and the optimizers' steps are SOK_HOST_DEVICE functions of cc/, which promise the
// same bits on CPU and GPU. The launchers here test that promise: nvcc compiles each of those headers through
// them, and shared_arithmetic_test compares their results with the host's, bit for bit.
//
// Pointers are to device memory of `n` elements unless noted. With n = 0 a launcher does nothing. Launches
// are asynchronous on `stream`; the result says whether the launch was enqueued.
#ifndef SOK_CUDA_SHARED_ARITHMETIC_H_
#define SOK_CUDA_SHARED_ARITHMETIC_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "cc/initializers/initializer.h"
#include "cc/optimizers/adam.h"
#include "cc/placement/key_owners.h"

namespace sok {

// mixed[i] = Mix64(words[i]).
cudaError_t EvaluateMix64(cudaStream_t stream, const uint64_t* words, uint64_t* mixed, int64_t n);

// owner_of[i] = owners.OwnerOf(keys[i]); the boundaries of ranges are in device memory.
cudaError_t EvaluateOwnerOf(cudaStream_t stream, const int64_t* keys, const KeyOwners& owners,
                            int32_t* owner_of, int64_t n);

// rows[i] = static_rows.RowOf(keys[i]).
cudaError_t EvaluateRowOf(cudaStream_t stream, const int64_t* keys, const StaticRows& static_rows,
                          int64_t* rows, int64_t n);

// values[i] = InitialValue(initializer, keys[i], column).
cudaError_t EvaluateInitialValue(cudaStream_t stream, const Initializer& initializer, const int64_t* keys,
                                 int64_t column, float* values, int64_t n);

// One step of the rule named `rule` (cc/optimizers/rules.h) on `rows` records, one thread per record.
// records[i * stride] starts with `dim` weights, followed by the slots; gradients is [rows, dim]. `hyper` is
// in host memory. cudaErrorInvalidValue for an unknown name.
cudaError_t EvaluateStep(cudaStream_t stream, std::string_view rule, const float* hyper,
                         const float* gradients, float* records, int64_t stride, int64_t rows, int64_t dim);

// The steps that an element missed under the exact Adam: catch_up(weights[i], m[i], v[i]), with four terms.
cudaError_t EvaluateCatchUp(cudaStream_t stream, const AdamCatchUp<4>& catch_up, float* weights, float* m,
                            float* v, int64_t n);

}  // namespace sok

#endif  // SOK_CUDA_SHARED_ARITHMETIC_H_
