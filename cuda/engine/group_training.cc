#include "cuda/engine/group_training.h"

#include <utility>
#include <vector>

#include "cc/table/table_errors.h"
#include "cuda/dedup/dedup.h"
#include "cuda/engine/checked_references.h"
#include "cuda/engine/group_gradients.h"
#include "cuda/engine/merged_training.h"
#include "cuda/engine/plan_views.h"
#include "cuda/engine/tables_at_work.h"
#include "cuda/pooling/weight_gradients.h"
#include "cuda/training/device_optimizer.h"

namespace sok {
namespace {

// FailedPrecondition if a row of the plan was erased from its table, InvalidArgument if the table never had
// it.
Status CheckRowsAreThere(GpuCall* call, const GpuGroupPlan& plan, int t, DeviceTable* table) {
  const TableOfPlan& of_plan = plan.tables[static_cast<size_t>(t)];
  if (of_plan.serial == table->serial() && of_plan.num_erased == table->num_erased()) return OkStatus();
  CheckedReferences checked;
  SOK_RETURN_IF_ERROR(checked.Enqueue(call->stream(), call->scratch(), *table,
                                      {plan.rows.data() + of_plan.first, of_plan.unique},
                                      /*may_be_absent=*/true));
  SOK_RETURN_IF_ERROR(checked.Check(call->stream(), *table, &table->round_trip()));
  if (checked.first_stale() == of_plan.unique) return OkStatus();
  const StatusOr<const int64_t*> key =
      table->round_trip().Fetch(call->stream(), plan.keys.data() + of_plan.first + checked.first_stale(), 1);
  SOK_RETURN_IF_ERROR(table->Named(key.status()));
  return RowWasEvicted(table->options(), *key.value());
}

// The distinct rows among some that may repeat.
struct DistinctRows {
  DeviceBuffer<int64_t> words;    // begin[2] of the rows, begin[2] of the distinct ones
  DeviceBuffer<int64_t> rows;     // [n]
  DeviceBuffer<int32_t> numbers;  // inverse[n], positions[n]
  int64_t count = 0;

  Status Enqueue(GpuCall* call, DeviceTable* table, const int64_t* repeated, int64_t n) {
    StatusOr<DeviceBuffer<int64_t>> made_words =
        DeviceBuffer<int64_t>::Allocate(call->scratch(), call->stream(), 4);
    SOK_RETURN_IF_ERROR(made_words.status());
    words = std::move(made_words.value());
    StatusOr<DeviceBuffer<int64_t>> made_rows =
        DeviceBuffer<int64_t>::Allocate(call->scratch(), call->stream(), n);
    SOK_RETURN_IF_ERROR(made_rows.status());
    rows = std::move(made_rows.value());
    StatusOr<DeviceBuffer<int32_t>> made_numbers =
        DeviceBuffer<int32_t>::Allocate(call->scratch(), call->stream(), 2 * n);
    SOK_RETURN_IF_ERROR(made_numbers.status());
    numbers = std::move(made_numbers.value());
    const int64_t begin[2] = {0, n};
    SOK_RETURN_IF_ERROR(table->upload().Copy(call->stream(), begin, sizeof(begin), words.data()));
    UniqueIds unique;
    unique.begin = words.data() + 2;
    unique.inverse = numbers.data();
    unique.position = numbers.data() + n;
    unique.keys = rows.data();
    return Dedup(call->stream(), call->scratch(), {repeated, words.data(), 1, n}, unique);
  }
  Status Fetch(GpuCall* call, DeviceTable* table) {
    const StatusOr<const int64_t*> begin = table->round_trip().Fetch(call->stream(), words.data() + 2, 2);
    SOK_RETURN_IF_ERROR(begin.status());
    count = begin.value()[1];
    return OkStatus();
  }
};

Status StepOf(GpuCall* call, DeviceTable* table, Span<const float> hyper, const RowUpdate& update,
              const OccurrenceSegments& group) {
  const DeviceStep step = {table->optimizer(), hyper, update};
  SOK_RETURN_IF_ERROR(
      table->Named(EnqueueSteps(call->stream(), call->scratch(), group, Span<const DeviceStep>(&step, 1))));
  return table->FinishStep(call->stream(), update.rows, update.count);
}

}  // namespace

Status GroupBackward(GpuCall* call, const GpuGroupPlan& plan, Span<const GradientRows> gradients,
                     Span<float* const> grads_out) {
  return SumMerged(call, plan, GradientsOfLookups(plan, gradients), grads_out);
}

Status GroupTrain(GpuCall* call, const GpuGroupPlan& plan, Span<const GradientRows> gradients,
                  std::string_view optimizer, Span<const DeviceTableStep> steps) {
  return TrainMerged(call, plan, GradientsOfLookups(plan, gradients), /*divisor=*/1.0f, optimizer, steps);
}

Status GroupWeightGradients(GpuCall* call, Span<DeviceTable* const> tables, const GpuGroupPlan& plan,
                            Span<const GradientRows> gradients, Span<float* const> weight_grads) {
  TablesAtWork at_work(call->stream(), tables);
  SOK_RETURN_IF_ERROR(at_work.Enter());
  std::vector<LookupWeightGradient> work;
  std::vector<uint8_t> is_checked(tables.size(), 0);
  for (int64_t l = 0; l < weight_grads.size(); ++l) {
    if (weight_grads[l] == nullptr) continue;
    const BagsOfLookup& lookup = plan.bags.lookups()[l];
    DeviceTable* const table = tables[lookup.table];
    if (!std::exchange(is_checked[lookup.table], uint8_t{1})) {
      SOK_RETURN_IF_ERROR(CheckRowsAreThere(call, plan, lookup.table, table));
    }
    LookupWeightGradient gradient;
    gradient.ids = OccurrenceRowsOf(plan, lookup.table, *table, plan.bags.keys());
    gradient.bags = BagsViewOf(plan.bags, static_cast<size_t>(l));
    gradient.gradient = gradients[l];
    if (lookup.has_order) gradient.order = plan.bags.order();
    gradient.given = lookup.given;
    gradient.occurrences = lookup.end - lookup.begin;
    gradient.out = weight_grads[l];
    work.push_back(gradient);
  }
  return EnqueueWeightGradients(call->stream(), work);
}

Status ApplyGradientsTo(GpuCall* call, DeviceTable* table, std::string_view optimizer,
                        Span<const float> hyper, Span<const int64_t> references, const float* grads,
                        bool distinct) {
  const int64_t n = references.size();
  const int64_t dim = table->options().dim;
  SOK_RETURN_IF_ERROR(table->CheckStep(optimizer, hyper));
  CheckedReferences checked;
  SOK_RETURN_IF_ERROR(
      checked.Enqueue(call->stream(), call->scratch(), *table, references, /*may_be_absent=*/false));
  if (n > 0) SOK_RETURN_IF_ERROR(checked.Check(call->stream(), *table, &table->round_trip()));
  // If rows repeat, their gradients are summed first.
  DistinctRows unique;
  if (!distinct) {
    SOK_RETURN_IF_ERROR(table->Named(unique.Enqueue(call, table, checked.rows(), n)));
    SOK_RETURN_IF_ERROR(table->Named(unique.Fetch(call, table)));
  }
  RepeatedGradients repeated;
  const bool sums = !distinct && unique.count < n;
  if (sums) {
    SOK_RETURN_IF_ERROR(table->Named(repeated.Enqueue(call->stream(), call->scratch(), unique.numbers.data(),
                                                      n, unique.count, grads, dim)));
  }
  if (table->optimizer() == nullptr) {
    SOK_RETURN_IF_ERROR(table->AttachOptimizer(call->stream(), optimizer, hyper));
  }
  if (!sums) {
    RowUpdate update = RowUpdateOf(*table, checked.rows(), n, hyper);
    update.stored = grads;
    return StepOf(call, table, hyper, update, {});
  }
  RowUpdate update = RowUpdateOf(*table, unique.rows.data(), unique.count, hyper);
  update.gradients = repeated.table();
  return StepOf(call, table, hyper, update, repeated.group());
}

}  // namespace sok
