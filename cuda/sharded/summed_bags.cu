#include "cc/lookup/divisor.h"
#include "cuda/base/part_launch.h"
#include "cuda/sharded/summed_bags.h"

namespace sok {
namespace {

struct DividedPart {
  DividedSums sums;
  PartPlace place;
};
struct GradientPart {
  GradientsOfSums gradients;
  PartPlace place;
};

// One group of lanes per bag.
__global__ void __launch_bounds__(kThreadsPerBlock)
    DivideKernel(const __grid_constant__ PartBatch<DividedPart> batch) {
  AwaitPreviousKernels();
  const DividedPart& part = PartOfBlock(batch);
  const LaneGroup group(part.place);
  if (group.item() >= part.place.items) return;
  const DividedSums& sums = part.sums;
  const int64_t ids = sums.bag_begin[group.item() + 1] - sums.bag_begin[group.item()];
  const float divisor = UnweightedDivisor(sums.combiner, ids);
  if (divisor == 0.0f || divisor == 1.0f) return;
  float* const sum = sums.output.data + group.item() * sums.output.stride;
  const bool multiplies = MultipliesByInverse(ids);
  const float inverse = 1.0f / divisor;
  for (int64_t c = group.lane(); c < sums.dim; c += group.lanes()) {
    sum[c] = multiplies ? sum[c] * inverse : sum[c] / divisor;
  }
}

// One group of lanes per sum.
__global__ void __launch_bounds__(kThreadsPerBlock)
    GradientKernel(const __grid_constant__ PartBatch<GradientPart> batch) {
  AwaitPreviousKernels();
  const GradientPart& part = PartOfBlock(batch);
  const LaneGroup group(part.place);
  if (group.item() >= part.place.items) return;
  const GradientsOfSums& in = part.gradients;
  const int64_t bag = in.bags[group.item()];
  const float scale = UnweightedScale(in.combiner, in.bag_begin[bag + 1] - in.bag_begin[bag]);
  const float* const gradient = in.gradient.data + bag * in.gradient.stride;
  float* const out = in.out + group.item() * in.dim;
  for (int64_t c = group.lane(); c < in.dim; c += group.lanes()) out[c] = scale * gradient[c];
}

}  // namespace

Status EnqueueDivisions(cudaStream_t stream, Span<const DividedSums> sums) {
  PartLauncher<DividedPart> launcher("DivideSums", stream, DivideKernel);
  for (const DividedSums& part : sums) {
    if (part.combiner == Combiner::kSum) continue;
    SOK_RETURN_IF_ERROR(launcher.Add({part, {}}, part.bags, LanesLog2(part.dim, 1)));
  }
  return launcher.Launch();
}

Status EnqueueSumGradients(cudaStream_t stream, Span<const GradientsOfSums> gradients) {
  PartLauncher<GradientPart> launcher("SumGradients", stream, GradientKernel);
  for (const GradientsOfSums& part : gradients) {
    SOK_RETURN_IF_ERROR(launcher.Add({part, {}}, part.sums, LanesLog2(part.dim, 1)));
  }
  return launcher.Launch();
}

}  // namespace sok
