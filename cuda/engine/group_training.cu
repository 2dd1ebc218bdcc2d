#include <utility>
#include <vector>

#include "cuda/dedup/dedup.h"
#include "cuda/engine/checked_references.h"
#include "cuda/engine/group_gradients.h"
#include "cuda/engine/group_training.h"
#include "cuda/engine/plan_views.h"
#include "cuda/engine/tables_at_work.h"
#include "cuda/pooling/weight_gradients.h"
#include "cuda/training/device_optimizer.h"

namespace sok {
namespace {

Span<const int64_t> TrainedReferences(const GpuGroupPlan& plan, int t) {
  const TableOfPlan& table = plan.tables[static_cast<size_t>(t)];
  return {plan.rows.data() + table.first, table.trained};
}

// A step of one table, with rows in place of references.
struct RowsOfStep {
  CheckedReferences resolved;
  const int64_t* rows = nullptr;
};

Status ResolveRows(GpuCall* call, const GpuGroupPlan& plan, const DeviceTableStep& step, RowsOfStep* rows) {
  const TableOfPlan& table = plan.tables[static_cast<size_t>(step.position)];
  const Span<const int64_t> references = TrainedReferences(plan, step.position);
  rows->rows = references.data();
  const bool is_same = table.serial == step.table->serial();
  // The references are the table's own row numbers then.
  if (is_same && step.table->states() == nullptr) return OkStatus();
  SOK_RETURN_IF_ERROR(rows->resolved.Enqueue(call->stream(), call->scratch(), *step.table, references,
                                             /*may_be_absent=*/false));
  rows->rows = rows->resolved.rows();
  return is_same ? OkStatus() : rows->resolved.Check(call->stream(), *step.table, &step.table->round_trip());
}

RowUpdate UpdateOf(const DeviceTable& table, const int64_t* rows, int64_t count, Span<const float> hyper) {
  RowUpdate update;
  update.table = table.rows();
  update.rows = rows;
  update.count = count;
  update.hyper = hyper.data();
  return update;
}

Status TakeSteps(GpuCall* call, const PlanGradients& gradients, std::string_view optimizer,
                 Span<const DeviceTableStep> steps, const std::vector<RowsOfStep>& rows) {
  for (const DeviceTableStep& step : steps) {
    if (step.table->optimizer() != nullptr) continue;
    SOK_RETURN_IF_ERROR(step.table->AttachOptimizer(call->stream(), optimizer, step.hyper));
  }
  std::vector<DeviceStep> work;
  for (int64_t i = 0; i < steps.size(); ++i) {
    const DeviceTableStep& step = steps[i];
    const TableGradients table = gradients.table(step.position);
    RowUpdate update = UpdateOf(*step.table, rows[i].rows, table.unique, step.hyper);
    update.gradients = table;
    work.push_back({step.table->optimizer(), step.hyper, update});
  }
  SOK_RETURN_IF_ERROR(EnqueueSteps(call->stream(), call->scratch(), gradients.group(), work));
  for (int64_t i = 0; i < steps.size(); ++i) {
    SOK_RETURN_IF_ERROR(steps[i].table->FinishStep(call->stream(), rows[i].rows, work[i].update.count));
  }
  return OkStatus();
}

// FailedPrecondition where a row of the plan has gone from its table, InvalidArgument where the table never
// had it.
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
  return FailedPrecondition("Embedding variable '", table->options().name, "': the row of key ", *key.value(),
                            " was evicted since the lookup, whose weights need it");
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
  PlanGradients plan_gradients;
  SOK_RETURN_IF_ERROR(plan_gradients.Enqueue(call->stream(), call->scratch(), plan, gradients));
  std::vector<TableGradients> tables;
  std::vector<SumsOutput> outputs;
  for (int t = 0; t < plan.num_tables(); ++t) {
    if (grads_out[t] == nullptr) continue;
    tables.push_back(plan_gradients.table(t));
    outputs.push_back({nullptr, tables.back().unique, grads_out[t]});
  }
  return EnqueueGradientSums(call->stream(), call->scratch(), plan_gradients.group(), tables, outputs);
}

Status GroupTrain(GpuCall* call, const GpuGroupPlan& plan, Span<const GradientRows> gradients,
                  std::string_view optimizer, Span<const DeviceTableStep> steps) {
  std::vector<DeviceTable*> tables;
  for (const DeviceTableStep& step : steps) tables.push_back(step.table);
  TablesAtWork at_work(call->stream(), tables);
  SOK_RETURN_IF_ERROR(at_work.Enter());
  for (const DeviceTableStep& step : steps) {
    SOK_RETURN_IF_ERROR(step.table->CheckStep(optimizer, step.hyper));
  }
  std::vector<RowsOfStep> rows(static_cast<size_t>(steps.size()));
  for (int64_t i = 0; i < steps.size(); ++i) {
    SOK_RETURN_IF_ERROR(ResolveRows(call, plan, steps[i], &rows[i]));
  }
  PlanGradients plan_gradients;
  SOK_RETURN_IF_ERROR(plan_gradients.Enqueue(call->stream(), call->scratch(), plan, gradients));
  return TakeSteps(call, plan_gradients, optimizer, steps, rows);
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
    gradient.ids = OccurrenceRowsOf(plan, static_cast<size_t>(l), *table);
    gradient.bags = BagsViewOf(plan, static_cast<size_t>(l));
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
  // Where rows repeat, their sums are made first.
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
    RowUpdate update = UpdateOf(*table, checked.rows(), n, hyper);
    update.stored = grads;
    return StepOf(call, table, hyper, update, {});
  }
  RowUpdate update = UpdateOf(*table, unique.rows.data(), unique.count, hyper);
  update.gradients = repeated.table();
  return StepOf(call, table, hyper, update, repeated.group());
}

}  // namespace sok
