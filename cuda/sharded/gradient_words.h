// Gradients in 16 bits, the form in which ranks send them.
#ifndef SOK_CUDA_SHARDED_GRADIENT_WORDS_H_
#define SOK_CUDA_SHARDED_GRADIENT_WORDS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/messages/gradient_format.h"

namespace sok {

// `count` floats and as many 16-bit numbers, on the device.
struct EncodedGradients {
  GradientFormat format = GradientFormat::kFloat16;  // one of those with 16 bits
  const float* values = nullptr;
  uint16_t* encoded = nullptr;
  int64_t count = 0;
};
struct DecodedGradients {
  GradientFormat format = GradientFormat::kFloat16;
  const uint16_t* encoded = nullptr;
  float* values = nullptr;
  int64_t count = 0;
};

// Enqueue EncodeGradients and DecodeGradients (cc/messages/gradient_format.h) for several arrays. Internal if
// a kernel cannot be launched.
Status EnqueueEncoding(cudaStream_t stream, Span<const EncodedGradients> gradients);
Status EnqueueDecoding(cudaStream_t stream, Span<const DecodedGradients> gradients);

// Gradients divided by the number of ranks.

// quotients[i] = values[i] / divisor for i < n, on the device. `quotients` may be `values`.
Status EnqueueDivision(cudaStream_t stream, const float* values, int64_t n, float divisor, float* quotients);

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_GRADIENT_WORDS_H_
