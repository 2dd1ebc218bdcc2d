#include "cuda/sharded/combine_rows.h"

#include <utility>
#include <vector>

#include "cc/sharded/exchange_errors.h"
#include "cuda/base/device_buffer.h"
#include "cuda/dedup/segments.h"
#include "cuda/engine/plan_views.h"
#include "cuda/pooling/pool.h"
#include "cuda/pooling/weight_gradients.h"
#include "cuda/sharded/received_rows.h"
#include "cuda/sharded/summed_bags.h"

namespace sok {
namespace {

OccurrenceRows RowsOfLookup(const GpuRoutedGroup& routed, const ReceivedRows& received, int t) {
  OccurrenceRows rows = received.of(t);
  rows.inverse = routed.merged.inverse.data();
  return rows;
}

// The owners' partial sums of one lookup's bags, in scratch that lives as long as this object.
struct SumsByBag {
  DeviceBuffer<int32_t> begin;      // [bags + 1]
  DeviceBuffer<int32_t> positions;  // [sums], each bag's in the order of the owners

  Status Enqueue(GpuCall* call, const int32_t* bags, int64_t sums, int64_t num_bags) {
    auto made_begin = DeviceBuffer<int32_t>::Allocate(call->scratch(), call->stream(), num_bags + 1);
    SOK_RETURN_IF_ERROR(made_begin.status());
    begin = std::move(made_begin.value());
    auto made_positions = DeviceBuffer<int32_t>::Allocate(call->scratch(), call->stream(), sums);
    SOK_RETURN_IF_ERROR(made_positions.status());
    positions = std::move(made_positions.value());
    return SortIntoSegments(call->stream(), call->scratch(), bags, sums, num_bags,
                            {begin.data(), positions.data()});
  }
};

}  // namespace

Status CombineRows(GpuCall* call, Span<DeviceTable* const> tables, const GpuRoutedGroup& routed,
                   const Inbox& replies, Span<const OutputRows> outputs) {
  const MutexLock lock(routed.transfers->mutex);
  ReceivedRows received;
  SOK_RETURN_IF_ERROR(received.Read(call, tables, routed, replies, outputs.size()));
  const std::vector<BagsOfLookup>& lookups = routed.merged.bags.lookups();
  std::vector<SumsByBag> sums(lookups.size());
  std::vector<LookupOutput> work;
  std::vector<DividedSums> divided;
  for (size_t l = 0; l < lookups.size(); ++l) {
    const BagsOfLookup& lookup = lookups[l];
    const int t = lookup.table;
    if (routed.merged.training) LookupCounts::Add(routed.counts[t]->ids, lookup.end - lookup.begin);
    if (!routed.sums(t)) {
      work.push_back({RowsOfLookup(routed, received, t), BagsViewOf(routed.merged.bags, l), outputs[l]});
      continue;
    }
    const int64_t first = routed.sum_begin[static_cast<size_t>(t) * routed.ranks];
    const int64_t end = routed.sum_begin[static_cast<size_t>(t + 1) * routed.ranks];
    SOK_RETURN_IF_ERROR(sums[l].Enqueue(call, routed.bags.data() + first, end - first, lookup.num_bags));
    LookupOutput output;
    output.ids = received.of(t);
    output.ids.rows += first;
    output.ids.inverse = sums[l].positions.data();
    output.bags.begin = sums[l].begin.data();
    output.bags.bags = lookup.num_bags;
    output.bags.occurrences = static_cast<int32_t>(end - first);
    output.output = outputs[l];
    work.push_back(output);
    divided.push_back({lookup.bag_begin, lookup.num_bags, lookup.combiner, routed.dims[t], outputs[l]});
  }
  SOK_RETURN_IF_ERROR(EnqueueOutputs(call->stream(), work));
  return EnqueueDivisions(call->stream(), divided);
}

Status WeightGradientsOfReceived(GpuCall* call, const GpuRoutedGroup& routed, const Inbox& replies,
                                 Span<const GradientRows> gradients, Span<float* const> weight_grads) {
  const MutexLock lock(routed.transfers->mutex);
  SOK_RETURN_IF_ERROR(CheckRouted(routed.num_lookups(), gradients.size()));
  ReceivedRows received;
  SOK_RETURN_IF_ERROR(received.Read(call, {}, routed, replies, gradients.size()));
  std::vector<LookupWeightGradient> work;
  for (size_t l = 0; l < static_cast<size_t>(weight_grads.size()); ++l) {
    if (weight_grads[l] == nullptr) continue;
    const BagsOfLookup& lookup = routed.merged.bags.lookups()[l];
    LookupWeightGradient gradient;
    gradient.ids = RowsOfLookup(routed, received, lookup.table);
    gradient.bags = BagsViewOf(routed.merged.bags, l);
    gradient.gradient = gradients[l];
    if (lookup.has_order) gradient.order = routed.merged.bags.order();
    gradient.given = lookup.given;
    gradient.occurrences = lookup.end - lookup.begin;
    gradient.out = weight_grads[l];
    work.push_back(gradient);
  }
  return EnqueueWeightGradients(call->stream(), work);
}

}  // namespace sok
