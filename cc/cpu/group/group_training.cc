#include "cc/cpu/group/group_training.h"

#include <vector>

#include "cc/base/vectorize.h"
#include "cc/cpu/group/lookup_passes.h"
#include "cc/cpu/pooling/vector_math.h"

namespace sok {

void PartGradients::Prepare(const LookupPlan& plan, int t, Span<const GradientRows> gradients) {
  if (plan.parts[t].trained > 0) {
    GradientsOfOccurrences(plan, t, gradients, &occurrences_);
  } else {  // no id is trained, and the ids may not be merged
    occurrences_.rows.clear();
    occurrences_.scales.clear();
  }
  rows_ = occurrences_.rows;
  scales_ = occurrences_.scales;
  divisor_ = 1.0f;
  Sort(plan.parts[t]);
}

void PartGradients::Prepare(const TablePart& part, Span<const float* const> rows, float divisor) {
  rows_ = rows;
  scales_ = {};
  divisor_ = divisor;
  Sort(part);
}

void PartGradients::Sort(const TablePart& part) {
  trained_ = part.trained;
  BuildSegments(part.inverse, static_cast<int64_t>(part.unique.size()), &segments_);
}

Span<const int64_t> PartGradients::offsets() const {
  return Span<const int64_t>(segments_.offsets).subspan(0, trained_ + 1);
}

void PartGradients::Sum(Executor& executor, int64_t dim, float* grads) const {
  SegmentSum(executor, offsets(), segments_.positions, rows_, scales_, dim, grads);
  if (divisor_ == 1.0f) return;
  executor.ParallelFor(trained_, dim, [&](int64_t first, int64_t last) {
    DivideSums((last - first) * dim, grads + first * dim);
  });
}

SegmentSums PartGradients::Sums(Executor& executor, int64_t dim) const {
  return SegmentSums(executor, offsets(), segments_.positions, rows_, scales_, dim);
}

void PartGradients::DivideSums(int64_t floats, float* sums) const {
  if (divisor_ == 1.0f) return;
  RunVectorized([&] { Divide(divisor_, floats, sums); });
}

namespace {

Table* TableOf(const EngineStep& step) { return static_cast<Table*>(step.table); }

Span<const int64_t> TrainedRows(const TablePart& part) {
  return Span<const int64_t>(part.rows).subspan(0, part.trained);
}

Status Train(Executor& executor, const GroupGradients& gradients, std::string_view optimizer,
             const EngineStep& step, PartGradients* part) {
  const int64_t dim = step.table->options().dim;
  const Span<const int64_t> rows = TrainedRows(gradients.part(step.position));
  gradients.Prepare(step.position, part);
  if (dim <= RowGradients::kBlockFloats) {
    return TableOf(step)->ApplyLocked(executor, optimizer, step.hyper, rows,
                                      SummedRowGradients(executor, *part, dim));
  }
  std::vector<float> sums(rows.size() * dim);
  part->Sum(executor, dim, sums.data());
  return TableOf(step)->ApplyLocked(executor, optimizer, step.hyper, rows,
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
                   Span<const EngineStep> steps, GradientScratch* scratch) {
  std::vector<Table*> tables;
  for (const EngineStep& step : steps) tables.push_back(TableOf(step));
  const TableLocks locks(tables);
  SOK_RETURN_IF_ERROR(ForEachPart(executor, steps.size(), [&](Executor& /*inner*/, int64_t i) {
    return TableOf(steps[i])->CheckStep(optimizer, steps[i].hyper,
                                        TrainedRows(gradients.part(steps[i].position)));
  }));
  return ForEachPart(executor, steps.size(), [&](Executor& inner, int64_t i) {
    return Train(inner, gradients, optimizer, steps[i], scratch->parts.Take().get());
  });
}

Status GroupTrain(Executor& executor, const LookupPlan& plan, Span<const GradientRows> gradients,
                  std::string_view optimizer, Span<const EngineStep> steps, GradientScratch* scratch) {
  return TrainTables(executor, PlanGradients(plan, gradients), optimizer, steps, scratch);
}

}  // namespace sok
