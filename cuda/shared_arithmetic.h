// The arithmetic that the two engines share, evaluated on a device: element by element, one thread each.
//
// Hashing, initial values and the optimizers' steps are SOK_HOST_DEVICE functions of cc/, which promise the
// same bits on CPU and GPU. The launchers here are how that promise is held: nvcc compiles every such header
// through them, and shared_arithmetic_test compares their results with the host's, bit for bit.
//
// Pointers are to device memory of `n` elements where nothing else is said; nothing is done for n = 0. A
// launch is asynchronous on `stream`; the result says whether it could be enqueued.
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

// owner_of[i] = owners.OwnerOf(keys[i]); the boundaries of ranges are in the device's memory.
cudaError_t EvaluateOwnerOf(cudaStream_t stream, const int64_t* keys, const KeyOwners& owners,
                            int32_t* owner_of, int64_t n);

// rows[i] = static_rows.RowOf(keys[i]).
cudaError_t EvaluateRowOf(cudaStream_t stream, const int64_t* keys, const StaticRows& static_rows,
                          int64_t* rows, int64_t n);

// values[i] = InitialValue(initializer, keys[i], column).
cudaError_t EvaluateInitialValue(cudaStream_t stream, const Initializer& initializer, const int64_t* keys,
                                 int64_t column, float* values, int64_t n);

// One step of the rule of that name (cc/optimizers/rules.h) on `rows` records with their gradients, one
// thread each: records[i * stride] has `dim` weights and then the slots, gradients is [rows, dim]. `hyper` is
// in host memory. cudaErrorInvalidValue for an unknown name.
cudaError_t EvaluateStep(cudaStream_t stream, std::string_view rule, const float* hyper,
                         const float* gradients, float* records, int64_t stride, int64_t rows, int64_t dim);

// The steps of the exact Adam that an element has missed: catch_up(weights[i], m[i], v[i]), of four terms.
cudaError_t EvaluateCatchUp(cudaStream_t stream, const AdamCatchUp<4>& catch_up, float* weights, float* m,
                            float* v, int64_t n);

}  // namespace sok

#endif  // SOK_CUDA_SHARED_ARITHMETIC_H_
