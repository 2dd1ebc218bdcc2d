#include "cc/group/group_training.h"

#include <vector>

#include "cc/group/parallel_parts.h"
#include "cc/group/table_locks.h"

namespace sok {
namespace {

Span<const int64_t> TrainedRows(const TablePart& part) {
  return Span<const int64_t>(part.rows).subspan(0, part.trained);
}

Status Train(Executor& executor, const GroupGradients& gradients, std::string_view optimizer,
             const TableStep& step, PartGradients* part) {
  const int64_t dim = step.table->options().dim;
  const Span<const int64_t> rows = TrainedRows(gradients.part(step.part));
  gradients.Prepare(step.part, part);
  if (dim <= RowGradients::kBlockFloats) {
    return step.table->ApplyGradients(executor, optimizer, step.hyper, rows,
                                      SummedRowGradients(executor, *part, dim));
  }
  std::vector<float> sums(rows.size() * dim);
  part->Sum(executor, dim, sums.data());
  return step.table->ApplyGradients(executor, optimizer, step.hyper, rows,
                                    StoredRowGradients(sums.data(), dim));
}

// Gradients of a plan's lookups.
class PlanGradients final : public GroupGradients {
 public:
  PlanGradients(const LookupPlan& plan, Span<const GradientRows> gradients)
      : plan_(plan), gradients_(gradients) {}
  const TablePart& part(int t) const override { return plan_.parts[t]; }
  void Prepare(int t, PartGradients* gradients) const override { gradients->Prepare(plan_, t, gradients_); }

 private:
  const LookupPlan& plan_;
  const Span<const GradientRows> gradients_;
};

}  // namespace

Status TrainTables(Executor& executor, const GroupGradients& gradients, std::string_view optimizer,
                   Span<const TableStep> steps, GradientScratch* scratch) {
  std::vector<Table*> tables;
  for (const TableStep& step : steps) tables.push_back(step.table);
  const TableLocks locks(tables);
  SOK_RETURN_IF_ERROR(ForEachPart(executor, steps.size(), [&](Executor& /*inner*/, int64_t i) {
    return steps[i].table->CheckStep(optimizer, steps[i].hyper, TrainedRows(gradients.part(steps[i].part)));
  }));
  return ForEachPart(executor, steps.size(), [&](Executor& inner, int64_t i) {
    return Train(inner, gradients, optimizer, steps[i], scratch->parts.Take().get());
  });
}

Status GroupTrain(Executor& executor, const LookupPlan& plan, Span<const GradientRows> gradients,
                  std::string_view optimizer, Span<const TableStep> steps, GradientScratch* scratch) {
  return TrainTables(executor, PlanGradients(plan, gradients), optimizer, steps, scratch);
}

}  // namespace sok
