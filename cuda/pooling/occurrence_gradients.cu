#include "cc/lookup/divisor.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
#include "cuda/pooling/occurrence_gradients.h"

namespace sok {
namespace {

struct DivisorPart {
  BagsView bags;
  float* divisors;
  PartPlace place;
};
struct OccurrencePart {
  LookupGradient lookup;
  const float* divisors;  // for bags with weights and a divisor, else null
  PartPlace place;
};

bool IsDivided(const LookupGradient& lookup) {
  return lookup.bags.pooled() && lookup.bags.weights != nullptr && lookup.bags.combiner != Combiner::kSum;
}

// One thread per bag, because weights are added in order.
__global__ void __launch_bounds__(kThreadsPerBlock)
    ComputeDivisors(const __grid_constant__ PartBatch<DivisorPart> batch) {
  AwaitPreviousKernels();
  const DivisorPart& part = PartOfBlock(batch);
  const int64_t bag = LaneGroup(part.place).item();
  if (bag >= part.place.items) return;
  float sum = 0.0f;
  for (int64_t i = part.bags.begin[bag]; i < part.bags.begin[bag + 1]; ++i) {
    sum += DivisorTerm(part.bags.combiner, part.bags.weights[i]);
  }
  part.divisors[bag] = DivisorOfSum(part.bags.combiner, sum);
}

__device__ int64_t BagOf(const LookupGradient& lookup, int64_t i) {
  if (lookup.bag_of != nullptr) return lookup.bag_of[i];
  return PartOf(lookup.bags.begin, static_cast<int>(lookup.bags.bags), static_cast<int32_t>(i));
}

__device__ float ScaleOf(const OccurrencePart& part, int64_t i, int64_t bag) {
  const BagsView& bags = part.lookup.bags;
  if (bags.weights == nullptr) return UnweightedScale(bags.combiner, bags.begin[bag + 1] - bags.begin[bag]);
  return WeightedScale(bags.weights[i], part.divisors == nullptr ? 1.0f : part.divisors[bag]);
}

// One thread per occurrence, because bags may have any length.
__global__ void __launch_bounds__(kThreadsPerBlock)
    FindGradients(const __grid_constant__ PartBatch<OccurrencePart> batch) {
  AwaitPreviousKernels();
  const OccurrencePart& part = PartOfBlock(batch);
  const int64_t item = LaneGroup(part.place).item();
  if (item >= part.place.items) return;
  const LookupGradient& lookup = part.lookup;
  const int64_t i = lookup.bags.first + item;
  OccurrenceGradient found;
  if (lookup.bags.begin == nullptr) {
    found.row = lookup.gradient.data + item * lookup.gradient.stride;
    found.scale = 1.0f;
  } else {
    const int64_t bag = BagOf(lookup, i);
    found.row = lookup.gradient.data + bag * lookup.gradient.stride;
    found.scale = ScaleOf(part, i, bag);
  }
  lookup.out[i] = found;
}

}  // namespace

Status EnqueueOccurrenceGradients(cudaStream_t stream, DeviceAllocator* scratch,
                                  Span<const LookupGradient> lookups) {
  int64_t divided = 0;
  for (const LookupGradient& lookup : lookups) divided += IsDivided(lookup) ? lookup.bags.bags : 0;
  StatusOr<DeviceBuffer<float>> divisors = DeviceBuffer<float>::Allocate(scratch, stream, divided);
  if (!divisors.ok()) return divisors.status();
  PartLauncher<DivisorPart> divide("ComputeDivisors", stream, ComputeDivisors);
  PartLauncher<OccurrencePart> find("FindGradients", stream, FindGradients);
  float* next = divisors.value().data();
  for (const LookupGradient& lookup : lookups) {
    if (!IsDivided(lookup)) continue;
    SOK_RETURN_IF_ERROR(divide.Add({lookup.bags, next, {}}, lookup.bags.bags, 0));
    next += lookup.bags.bags;
  }
  SOK_RETURN_IF_ERROR(divide.Launch());
  next = divisors.value().data();
  for (const LookupGradient& lookup : lookups) {
    const bool divided_here = IsDivided(lookup);
    SOK_RETURN_IF_ERROR(find.Add({lookup, divided_here ? next : nullptr, {}}, lookup.occurrences, 0));
    if (divided_here) next += lookup.bags.bags;
  }
  return find.Launch();
}

}  // namespace sok
