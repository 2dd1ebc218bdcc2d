#include <utility>
#include <vector>

#include "cuda/dedup/segments.h"
#include "cuda/engine/group_gradients.h"
#include "cuda/engine/plan_views.h"

namespace sok {
namespace {

bool AreFours(const GradientRows& gradient) {
  return reinterpret_cast<uintptr_t>(gradient.data) % 16 == 0 && gradient.stride % 4 == 0;
}

template <typename T>
Status AllocateInto(cudaStream_t stream, DeviceAllocator* allocator, int64_t size, DeviceBuffer<T>* buffer) {
  StatusOr<DeviceBuffer<T>> made = DeviceBuffer<T>::Allocate(allocator, stream, size);
  SOK_RETURN_IF_ERROR(made.status());
  *buffer = std::move(made.value());
  return OkStatus();
}

}  // namespace

Status PlanGradients::Enqueue(cudaStream_t stream, DeviceAllocator* scratch, const GpuGroupPlan& plan,
                              Span<const GradientRows> gradients) {
  plan_ = &plan;
  SOK_RETURN_IF_ERROR(AllocateInto(stream, scratch, plan.unique_count + 1, &begin_));
  SOK_RETURN_IF_ERROR(AllocateInto(stream, scratch, plan.occurrences, &positions_));
  SOK_RETURN_IF_ERROR(AllocateInto(stream, scratch, plan.occurrences, &occurrences_));
  SOK_RETURN_IF_ERROR(SortIntoSegments(stream, scratch, plan.inverse.data(), plan.occurrences,
                                       plan.unique_count, {begin_.data(), positions_.data()}));
  return FindGradients(stream, scratch, gradients);
}

Status PlanGradients::FindGradients(cudaStream_t stream, DeviceAllocator* scratch,
                                    Span<const GradientRows> gradients) {
  in_fours_.assign(plan_->tables.size(), 1);
  std::vector<LookupGradient> lookups;
  for (size_t l = 0; l < plan_->bags.lookups().size(); ++l) {
    const BagsOfLookup& lookup = plan_->bags.lookups()[l];
    if (!AreFours(gradients[l])) in_fours_[static_cast<size_t>(lookup.table)] = 0;
    LookupGradient gradient;
    gradient.bags = BagsViewOf(*plan_, l);
    gradient.occurrences = lookup.end - lookup.begin;
    gradient.gradient = gradients[l];
    gradient.out = occurrences_.data();
    lookups.push_back(gradient);
  }
  return EnqueueOccurrenceGradients(stream, scratch, lookups);
}

TableGradients PlanGradients::table(int t) const {
  const TableOfPlan& table = plan_->tables[static_cast<size_t>(t)];
  const std::vector<int64_t>& table_begin = plan_->bags.host_table_begin();
  TableGradients gradients;
  gradients.dim = table.dim;
  gradients.first_unique = table.first;
  gradients.unique = table.trained;
  gradients.first_occurrence = table_begin[t];
  gradients.occurrences = table_begin[t + 1] - table_begin[t];
  gradients.in_fours = table.dim % 4 == 0 && in_fours_[static_cast<size_t>(t)] != 0;
  return gradients;
}

Status RepeatedGradients::Enqueue(cudaStream_t stream, DeviceAllocator* scratch, const int32_t* inverse,
                                  int64_t n, int64_t unique, const float* grads, int64_t dim) {
  SOK_RETURN_IF_ERROR(AllocateInto(stream, scratch, unique + 1, &begin_));
  SOK_RETURN_IF_ERROR(AllocateInto(stream, scratch, n, &positions_));
  SOK_RETURN_IF_ERROR(AllocateInto(stream, scratch, n, &occurrences_));
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
