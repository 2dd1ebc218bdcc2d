#include "cuda/engine/merged_training.h"

#include "cuda/engine/checked_references.h"
#include "cuda/engine/tables_at_work.h"
#include "cuda/training/device_optimizer.h"

namespace sok {
namespace {

Span<const int64_t> TrainedReferences(const MergedGroup& group, int t) {
  const TableOfPlan& table = group.tables[static_cast<size_t>(t)];
  return {group.rows.data() + table.first, table.trained};
}

// A step of one table, with rows instead of references.
struct RowsOfStep {
  CheckedReferences resolved;
  const int64_t* rows = nullptr;
};

Status ResolveRows(GpuCall* call, const MergedGroup& group, const DeviceTableStep& step, RowsOfStep* rows) {
  const TableOfPlan& table = group.tables[static_cast<size_t>(step.position)];
  const Span<const int64_t> references = TrainedReferences(group, step.position);
  rows->rows = references.data();
  const bool is_same = table.serial == step.table->serial();
  // In this case references are row numbers.
  if (is_same && step.table->states() == nullptr) return OkStatus();
  SOK_RETURN_IF_ERROR(rows->resolved.Enqueue(call->stream(), call->scratch(), *step.table, references,
                                             /*may_be_absent=*/false));
  rows->rows = rows->resolved.rows();
  return is_same ? OkStatus() : rows->resolved.Check(call->stream(), *step.table, &step.table->round_trip());
}

// Whether the rows have missed no step since the group's lookup.
bool AreCurrent(const TableOfPlan& of_plan, const DeviceTable& table) {
  return of_plan.serial == table.serial() && of_plan.current_at == table.optimizer()->version();
}

Status TakeSteps(GpuCall* call, const MergedGroup& group, const MergedGradients& gradients,
                 std::string_view optimizer, Span<const DeviceTableStep> steps,
                 const std::vector<RowsOfStep>& rows) {
  for (const DeviceTableStep& step : steps) {
    if (step.table->optimizer() != nullptr) continue;
    SOK_RETURN_IF_ERROR(step.table->AttachOptimizer(call->stream(), optimizer, step.hyper));
  }
  std::vector<DeviceStep> work;
  for (int64_t i = 0; i < steps.size(); ++i) {
    const DeviceTableStep& step = steps[i];
    const int64_t trained = group.tables[static_cast<size_t>(step.position)].trained;
    RowUpdate update = RowUpdateOf(*step.table, rows[i].rows, trained, step.hyper);
    update.rows_are_current = AreCurrent(group.tables[static_cast<size_t>(step.position)], *step.table);
    update.gradients = gradients.table(step.position, trained);
    work.push_back({step.table->optimizer(), step.hyper, update});
  }
  SOK_RETURN_IF_ERROR(EnqueueSteps(call->stream(), call->scratch(), gradients.group(), work));
  for (int64_t i = 0; i < steps.size(); ++i) {
    SOK_RETURN_IF_ERROR(steps[i].table->FinishStep(call->stream(), rows[i].rows, work[i].update.count));
  }
  return OkStatus();
}

}  // namespace

RowUpdate RowUpdateOf(const DeviceTable& table, const int64_t* rows, int64_t count, Span<const float> hyper) {
  RowUpdate update;
  update.table = table.rows();
  update.rows = rows;
  update.count = count;
  update.hyper = hyper.data();
  return update;
}

Status SumMerged(GpuCall* call, const MergedGroup& group, const std::vector<GradientOfTable>& gradients,
                 Span<float* const> grads_out) {
  MergedGradients merged;
  SOK_RETURN_IF_ERROR(merged.Enqueue(call->stream(), call->scratch(), group, gradients));
  std::vector<TableGradients> tables;
  std::vector<SumsOutput> outputs;
  for (int t = 0; t < group.num_tables(); ++t) {
    if (grads_out[t] == nullptr) continue;
    const int64_t trained = group.tables[static_cast<size_t>(t)].trained;
    outputs.push_back({static_cast<int64_t>(tables.size()), nullptr, trained, grads_out[t]});
    tables.push_back(merged.table(t, trained));
  }
  return EnqueueGradientSums(call->stream(), call->scratch(), merged.group(), tables, outputs);
}

Status TrainMerged(GpuCall* call, const MergedGroup& group, const std::vector<GradientOfTable>& gradients,
                   float divisor, std::string_view optimizer, Span<const DeviceTableStep> steps) {
  std::vector<DeviceTable*> tables;
  for (const DeviceTableStep& step : steps) tables.push_back(step.table);
  TablesAtWork at_work(call->stream(), tables);
  SOK_RETURN_IF_ERROR(at_work.Enter());
  for (const DeviceTableStep& step : steps) {
    SOK_RETURN_IF_ERROR(step.table->CheckStep(optimizer, step.hyper));
  }
  std::vector<RowsOfStep> rows(static_cast<size_t>(steps.size()));
  for (int64_t i = 0; i < steps.size(); ++i) {
    SOK_RETURN_IF_ERROR(ResolveRows(call, group, steps[i], &rows[i]));
  }
  MergedGradients merged;
  SOK_RETURN_IF_ERROR(merged.Enqueue(call->stream(), call->scratch(), group, gradients, divisor));
  return TakeSteps(call, group, merged, optimizer, steps, rows);
}

}  // namespace sok
