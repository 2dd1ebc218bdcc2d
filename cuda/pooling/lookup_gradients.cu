#include "cc/lookup/divisor.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
#include "cuda/pooling/lookup_gradients.h"
#include "cuda/pooling/read_row.h"

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
  SOK_ASSIGN_OR_RETURN(auto divisors, DeviceBuffer<float>::Allocate(scratch, stream, divided));
  PartLauncher<DivisorPart> divide("ComputeDivisors", stream, ComputeDivisors);
  PartLauncher<OccurrencePart> find("FindGradients", stream, FindGradients);
  float* next = divisors.data();
  for (const LookupGradient& lookup : lookups) {
    if (!IsDivided(lookup)) continue;
    SOK_RETURN_IF_ERROR(divide.Add({lookup.bags, next, {}}, lookup.bags.bags, 0));
    next += lookup.bags.bags;
  }
  SOK_RETURN_IF_ERROR(divide.Launch());
  next = divisors.data();
  for (const LookupGradient& lookup : lookups) {
    const bool divided_here = IsDivided(lookup);
    SOK_RETURN_IF_ERROR(find.Add({lookup, divided_here ? next : nullptr, {}}, lookup.occurrences, 0));
    if (divided_here) next += lookup.bags.bags;
  }
  return find.Launch();
}

namespace {

// A dot product has eight partial sums (cc/cpu/pooling/vector_math.h), one for each lane of a group.
constexpr int kLanesLog2 = 3;
constexpr int kLanes = 1 << kLanesLog2;

struct WeightPart {
  LookupWeightGradient lookup;
  PartPlace place;
};

__device__ float* OutOf(const LookupWeightGradient& lookup, int64_t i) {
  return lookup.out + (lookup.order == nullptr ? i - lookup.bags.first : lookup.order[i]);
}

// The bits of Dot, in every lane.
template <bool kMayBeAbsent, bool kHalves>
__device__ float DotWithRow(const LookupWeightGradient& lookup, const LaneGroup& group, const float* gradient,
                            int64_t i) {
  float sum = 0.0f;
  for (int64_t c = group.lane(); c < lookup.ids.table.dim; c += kLanes) {
    sum += gradient[c] * ReadRow<1, kMayBeAbsent, kHalves>(lookup.ids, i, c).v[0];
  }
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(group.mask(), sum, distance, kLanes);
  }
  return sum;
}

// One group of lanes per bag.
template <bool kMayBeAbsent, bool kHalves>
__device__ __forceinline__ void DifferentiateWeightsOf(const WeightPart& part) {
  const LaneGroup group(part.place);
  if (group.item() >= part.place.items) return;
  const LookupWeightGradient& lookup = part.lookup;
  const Combiner combiner = lookup.bags.combiner;
  const float* const weights = lookup.bags.weights;
  const float* const gradient = lookup.gradient.data + group.item() * lookup.gradient.stride;
  const int64_t begin = lookup.bags.begin[group.item()];
  const int64_t end = lookup.bags.begin[group.item() + 1];

  float divisor_sum = 0.0f;
  float pooled = 0.0f;
  for (int64_t i = begin; i < end; ++i) {
    const float dot = DotWithRow<kMayBeAbsent, kHalves>(lookup, group, gradient, i);
    if (group.lane() == 0) *OutOf(lookup, i) = dot;
    pooled += weights[i] * dot;
    divisor_sum += DivisorTerm(combiner, weights[i]);
  }
  if (combiner == Combiner::kSum) return;
  const float divisor = DivisorOfSum(combiner, divisor_sum);
  pooled /= divisor;
  group.Sync();
  for (int64_t i = begin + group.lane(); i < end; i += kLanes) {
    float* const out = OutOf(lookup, i);
    *out = divisor == 0.0f ? 0.0f : WeightGradient(combiner, weights[i], *out, pooled, divisor);
  }
}

template <bool kMayBeAbsent>
__global__ void __launch_bounds__(kThreadsPerBlock)
    DifferentiateWeights(const __grid_constant__ PartBatch<WeightPart> batch) {
  AwaitPreviousKernels();
  DifferentiateWeightsOf<kMayBeAbsent, /*kHalves=*/false>(PartOfBlock(batch));
}

// Of rows in 16 bits.
__global__ void __launch_bounds__(kThreadsPerBlock)
    DifferentiateWeightsOfHalves(const __grid_constant__ PartBatch<WeightPart> batch) {
  AwaitPreviousKernels();
  DifferentiateWeightsOf</*kMayBeAbsent=*/true, /*kHalves=*/true>(PartOfBlock(batch));
}

// Launches the kernel of the lookups that `takes` says.
template <typename Takes>
Status EnqueueKind(cudaStream_t stream, Span<const LookupWeightGradient> lookups,
                   void (*kernel)(PartBatch<WeightPart>), const Takes& takes) {
  PartLauncher<WeightPart> launcher("DifferentiateWeights", stream, kernel);
  for (const LookupWeightGradient& lookup : lookups) {
    if (!takes(lookup.ids)) continue;
    SOK_RETURN_IF_ERROR(launcher.Add({lookup, {}}, lookup.bags.bags, kLanesLog2));
  }
  return launcher.Launch();
}

}  // namespace

Status EnqueueWeightGradients(cudaStream_t stream, Span<const LookupWeightGradient> lookups) {
  for (const LookupWeightGradient& lookup : lookups) {
    if (lookup.given == lookup.occurrences) continue;
    SOK_RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(lookup.out, 0, static_cast<size_t>(lookup.given) * sizeof(float), stream),
        "cannot clear gradients of weights");
  }
  SOK_RETURN_IF_ERROR(
      EnqueueKind(stream, lookups, DifferentiateWeights<false>,
                  [](const OccurrenceRows& ids) { return !ids.in_halves() && !ids.may_be_absent; }));
  SOK_RETURN_IF_ERROR(EnqueueKind(stream, lookups, DifferentiateWeights<true>, [](const OccurrenceRows& ids) {
    return !ids.in_halves() && ids.may_be_absent;
  }));
  return EnqueueKind(stream, lookups, DifferentiateWeightsOfHalves,
                     [](const OccurrenceRows& ids) { return ids.in_halves(); });
}

}  // namespace sok
