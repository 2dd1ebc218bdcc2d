// CUDA's errors as statuses.
#ifndef SOK_CUDA_BASE_CUDA_STATUS_H_
#define SOK_CUDA_BASE_CUDA_STATUS_H_

#include <cuda_runtime.h>

#include "cc/base/status.h"

namespace sok {

// OK for cudaSuccess. ResourceExhausted if memory runs out, Internal for every other error; the message
// starts with `what...`, which says what failed, as in "cannot copy 12 bytes". Also clears the runtime's last
// error, which the next caller of cudaGetLastError would get otherwise.
template <typename... What>
Status CudaStatus(cudaError_t error, const What&... what) {
  if (error == cudaSuccess) return OkStatus();
  cudaGetLastError();
  const std::string message =
      StrCat(what..., ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
  if (error == cudaErrorMemoryAllocation) return ResourceExhausted(message);
  return Internal(message);
}

}  // namespace sok

// Returns from the calling function if `expr`, a cudaError_t, is an error. The other arguments make the
// message, and are evaluated only then.
#define SOK_RETURN_IF_CUDA_ERROR(expr, ...)                                                     \
  do {                                                                                          \
    const cudaError_t sok_cuda_error_ = (expr);                                                 \
    if (sok_cuda_error_ != cudaSuccess) return ::sok::CudaStatus(sok_cuda_error_, __VA_ARGS__); \
  } while (false)

#endif  // SOK_CUDA_BASE_CUDA_STATUS_H_
