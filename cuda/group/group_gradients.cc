#include "cuda/group/group_gradients.h"

#include <utility>
#include <vector>

#include "cuda/dedup/dedup.h"
#include "cuda/group/group_merge.h"

namespace sok {
namespace {

bool AreFours(const GradientRows& gradient) {
  return reinterpret_cast<uintptr_t>(gradient.data) % 16 == 0 && gradient.stride % 4 == 0;
}

}  // namespace

std::vector<GradientOfTable> GradientsOfLookups(const MergedBags& group, Span<const GradientRows> gradients) {
  std::vector<GradientOfTable> of_lookups;
  for (size_t l = 0; l < group.bags.lookups().size(); ++l) {
    const BagsOfLookup& lookup = group.bags.lookups()[l];
    LookupGradient gradient;
    gradient.bags = BagsViewOf(group.bags, l);
    gradient.occurrences = lookup.end - lookup.begin;
    gradient.gradient = gradients[l];
    of_lookups.push_back({lookup.table, gradient});
  }
  return of_lookups;
}

Status MergedGradients::Enqueue(cudaStream_t stream, DeviceAllocator* scratch, const MergedGroup& group,
                                const std::vector<GradientOfTable>& gradients, float divisor) {
  group_ = &group;
  divisor_ = divisor;
  in_fours_.assign(group.tables.size(), 1);
  if (!group.is_merged) return OkStatus();  // no id is trained
  SOK_ASSIGN_OR_RETURN(begin_, DeviceBuffer<int32_t>::Allocate(scratch, stream, group.unique_count + 1));
  SOK_ASSIGN_OR_RETURN(positions_, DeviceBuffer<int32_t>::Allocate(scratch, stream, group.occurrences()));
  SOK_ASSIGN_OR_RETURN(occurrences_,
                       DeviceBuffer<OccurrenceGradient>::Allocate(scratch, stream, group.occurrences()));
  SOK_RETURN_IF_ERROR(SortIntoSegments(stream, scratch, group.inverse.data(), group.occurrences(),
                                       group.unique_count, {begin_.data(), positions_.data()}));
  std::vector<LookupGradient> work;
  for (const GradientOfTable& of_table : gradients) {
    if (!AreFours(of_table.gradient.gradient)) in_fours_[static_cast<size_t>(of_table.table)] = 0;
    work.push_back(of_table.gradient);
    work.back().out = occurrences_.data();
  }
  return EnqueueOccurrenceGradients(stream, scratch, work);
}

TableGradients MergedGradients::table(int t, int64_t ids) const {
  const TableOfPlan& table = group_->tables[static_cast<size_t>(t)];
  TableGradients gradients;
  gradients.dim = table.dim;
  gradients.first_unique = table.first;
  gradients.unique = ids;
  gradients.first_occurrence = group_->occurrence_begin[t];
  gradients.occurrences = ids == 0 ? 0 : group_->occurrences(t);
  gradients.in_fours = table.dim % 4 == 0 && in_fours_[static_cast<size_t>(t)] != 0;
  gradients.divisor = divisor_;
  return gradients;
}

Status RepeatedGradients::Enqueue(cudaStream_t stream, DeviceAllocator* scratch, const int32_t* inverse,
                                  int64_t n, int64_t unique, const float* grads, int64_t dim) {
  SOK_ASSIGN_OR_RETURN(begin_, DeviceBuffer<int32_t>::Allocate(scratch, stream, unique + 1));
  SOK_ASSIGN_OR_RETURN(positions_, DeviceBuffer<int32_t>::Allocate(scratch, stream, n));
  SOK_ASSIGN_OR_RETURN(occurrences_, DeviceBuffer<OccurrenceGradient>::Allocate(scratch, stream, n));
  SOK_RETURN_IF_ERROR(
      SortIntoSegments(stream, scratch, inverse, n, unique, {begin_.data(), positions_.data()}));
  LookupGradient each;
  each.bags.bags = n;
  each.occurrences = n;
  each.gradient = {grads, dim};
  each.out = occurrences_.data();
  table_ = {};
  table_.dim = dim;
  table_.unique = unique;
  table_.occurrences = n;
  table_.in_fours = dim % 4 == 0 && AreFours(each.gradient);
  return EnqueueOccurrenceGradients(stream, scratch, Span<const LookupGradient>(&each, 1));
}

}  // namespace sok
