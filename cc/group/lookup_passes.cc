#include "cc/group/lookup_passes.h"

#include <algorithm>

#include "cc/pooling/segment_sum.h"

namespace sok {
namespace {

Span<const int32_t> InverseOf(const TablePart& part, const Lookup& lookup) {
  if (lookup.count == 0) return {};  // `inverse` is empty if no ids were merged
  return Span<const int32_t>(part.inverse).subspan(lookup.first, lookup.count);
}

bool IsScaled(const Lookup& lookup) {
  return lookup.pooled && (lookup.combiner != Combiner::kSum || !lookup.weights.empty());
}

}  // namespace

void WriteOutput(Executor& executor, const Lookup& lookup, const TablePart& part,
                 Span<const float* const> rows, int64_t dim, const OutputRows& output, OutputStores stores) {
  const Span<const int32_t> inverse = InverseOf(part, lookup);
  if (lookup.pooled) {
    PoolForward(executor, rows, inverse, lookup.offsets, lookup.weights, lookup.combiner, dim, output.data,
                output.stride);
  } else {
    GatherForward(executor, rows, inverse, dim, output.data, output.stride, stores);
  }
}

void GradientsOfOccurrences(const LookupPlan& plan, int t, Span<const GradientRows> gradients,
                            OccurrenceGradients* result) {
  const size_t occurrences = plan.parts[t].inverse.size();
  result->rows.resize(occurrences);
  result->scales.clear();
  const bool scaled = std::any_of(plan.lookups.begin(), plan.lookups.end(), [t](const Lookup& lookup) {
    return lookup.table == t && IsScaled(lookup);
  });
  if (scaled) result->scales.assign(occurrences, 1.0f);

  for (size_t l = 0; l < plan.lookups.size(); ++l) {
    const Lookup& lookup = plan.lookups[l];
    if (lookup.table != t) continue;
    const float* gradient = gradients[l].data;
    const float** out = result->rows.data() + lookup.first;
    const int64_t stride = gradients[l].stride;
    if (!lookup.pooled) {
      for (int64_t i = 0; i < lookup.count; ++i) out[i] = gradient + i * stride;
      continue;
    }
    for (int64_t bag = 0; bag < lookup.num_bags(); ++bag, gradient += stride) {
      std::fill(out + lookup.offsets[bag], out + lookup.offsets[bag + 1], gradient);
    }
    if (scaled) {
      BagScales(lookup.combiner, lookup.offsets, lookup.weights,
                Span<float>(result->scales).subspan(lookup.first, lookup.count));
    }
  }
}

void LookupWeightGradients(Executor& executor, const LookupPlan& plan, int l, Span<const float* const> rows,
                           int64_t dim, const GradientRows& gradient, Span<float> weight_grads) {
  const Lookup& lookup = plan.lookups[l];
  if (weight_grads.size() > lookup.count) std::fill(weight_grads.begin(), weight_grads.end(), 0.0f);
  std::vector<float> in_bag_order(lookup.order.empty() ? 0 : lookup.count);
  const Span<float> out = lookup.order.empty() ? weight_grads : Span<float>(in_bag_order);
  WeightGradients(executor, lookup.combiner, rows, InverseOf(plan.parts[lookup.table], lookup),
                  lookup.offsets, lookup.weights, gradient.data, gradient.stride, dim, out);
  for (size_t i = 0; i < in_bag_order.size(); ++i) weight_grads[lookup.order[i]] = in_bag_order[i];
}

}  // namespace sok
