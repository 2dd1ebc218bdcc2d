// What messages between ranks need on the device: gradients in 16 bits, copies of many small pieces, and bags
// that their owners have summed.
#ifndef SOK_CUDA_SHARDED_MESSAGE_KERNELS_H_
#define SOK_CUDA_SHARDED_MESSAGE_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/lookup/lookup_input.h"
#include "cc/messages/message.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"

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

// Enqueue EncodeGradients and DecodeGradients (cc/messages/message.h) for several arrays. Internal if
// a kernel cannot be launched.
Status EnqueueEncoding(cudaStream_t stream, Span<const EncodedGradients> gradients);
Status EnqueueDecoding(cudaStream_t stream, Span<const DecodedGradients> gradients);

// Gradients divided by the number of ranks.

// quotients[i] = values[i] / divisor for i < n, on the device. `quotients` may be `values`.
Status EnqueueDivision(cudaStream_t stream, const float* values, int64_t n, float divisor, float* quotients);

// Many small copies on the device in one launch, to assemble and split messages between ranks.

// to[0 .. count) = from[0 .. count), and to[count .. padded) = 0. On the device. `from` may be null if
// `count` is 0.
template <typename T>
struct CopiedPiece {
  const T* from = nullptr;
  T* to = nullptr;
  int64_t count = 0;
  int64_t padded = 0;
};
using CopiedWords = CopiedPiece<int64_t>;
using CopiedNumbers = CopiedPiece<int32_t>;

// Enqueues the copies on the stream. Pieces do not overlap; they need not outlive the call. ResourceExhausted
// if memory runs out; takes about 40 bytes per piece. One call at a time for each `upload`.
Status CopyPieces(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                  Span<const CopiedWords> pieces);
Status CopyPieces(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                  Span<const CopiedNumbers> pieces);

// The asking rank's work on bags that the owners have summed.

// Bag b has bag_begin[b + 1] - bag_begin[b] ids. Arrays on the device.
struct DividedSums {
  const int32_t* bag_begin = nullptr;  // [bags + 1]
  int64_t bags = 0;
  Combiner combiner = Combiner::kSum;
  int64_t dim = 0;
  OutputRows output;  // [bags, dim]: sums
};
// Divides the sums of bags without weights as their combiner requires, with the bits of BagDivisor and
// DivideUnweighted (cc/lookup/divisor.h). Internal if a kernel cannot be launched.
Status EnqueueDivisions(cudaStream_t stream, Span<const DividedSums> sums);

// The gradients of some sums: out[k, 0..dim) is the gradient of bag bags[k], scaled as it reaches each row.
struct GradientsOfSums {
  const int32_t* bag_begin = nullptr;
  Combiner combiner = Combiner::kSum;
  int64_t dim = 0;
  GradientRows gradient;
  const int32_t* bags = nullptr;  // [sums]
  int64_t sums = 0;
  float* out = nullptr;
};
Status EnqueueSumGradients(cudaStream_t stream, Span<const GradientsOfSums> gradients);

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_MESSAGE_KERNELS_H_
