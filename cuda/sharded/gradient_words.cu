#include "cc/messages/gradient_format.h"
#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
#include "cuda/sharded/gradient_words.h"

namespace sok {
namespace {

struct EncodedPart {
  EncodedGradients gradients;
  PartPlace place;
};
struct DecodedPart {
  DecodedGradients gradients;
  PartPlace place;
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    EncodeKernel(const __grid_constant__ PartBatch<EncodedPart> batch) {
  AwaitPreviousKernels();
  const EncodedPart& part = PartOfBlock(batch);
  const int64_t i = LaneGroup(part.place).item();
  if (i >= part.place.items) return;
  const float value = part.gradients.values[i];
  part.gradients.encoded[i] =
      part.gradients.format == GradientFormat::kFloat16 ? ToFloat16(value) : ToBfloat16(value);
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    DecodeKernel(const __grid_constant__ PartBatch<DecodedPart> batch) {
  AwaitPreviousKernels();
  const DecodedPart& part = PartOfBlock(batch);
  const int64_t i = LaneGroup(part.place).item();
  if (i >= part.place.items) return;
  const uint16_t encoded = part.gradients.encoded[i];
  part.gradients.values[i] =
      part.gradients.format == GradientFormat::kFloat16 ? FromFloat16(encoded) : FromBfloat16(encoded);
}

}  // namespace

Status EnqueueEncoding(cudaStream_t stream, Span<const EncodedGradients> gradients) {
  PartLauncher<EncodedPart> launcher("EncodeGradients", stream, EncodeKernel);
  for (const EncodedGradients& part : gradients) {
    SOK_RETURN_IF_ERROR(launcher.Add({part, {}}, part.count, 0));
  }
  return launcher.Launch();
}

Status EnqueueDecoding(cudaStream_t stream, Span<const DecodedGradients> gradients) {
  PartLauncher<DecodedPart> launcher("DecodeGradients", stream, DecodeKernel);
  for (const DecodedGradients& part : gradients) {
    SOK_RETURN_IF_ERROR(launcher.Add({part, {}}, part.count, 0));
  }
  return launcher.Launch();
}

namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    DivisionKernel(const float* values, int64_t n, float divisor, float* quotients) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) quotients[i] = values[i] / divisor;
}

}  // namespace

Status EnqueueDivision(cudaStream_t stream, const float* values, int64_t n, float divisor, float* quotients) {
  return Launch("Division", stream, ShapeFor(n), DivisionKernel, values, n, divisor, quotients);
}

}  // namespace sok
