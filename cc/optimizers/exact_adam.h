#ifndef SOK_CC_OPTIMIZERS_EXACT_ADAM_H_
#define SOK_CC_OPTIMIZERS_EXACT_ADAM_H_

#include <cstdint>
#include <optional>

#include "cc/optimizers/adam.h"
#include "cc/optimizers/adam_history.h"
#include "cc/optimizers/missed_steps.h"
#include "cc/optimizers/optimizer.h"

namespace sok {

// Adam as TensorFlow runs it on a dense variable, where every step decays every row's moments and moves every
// row, at the price of touching the rows that have a gradient: a row carries the step at which it was last
// current, and gets the steps that it has missed, all at once, when it is next updated or read. adam_series.h
// says how; against the dense optimizer in double precision the result is off by float rounding.
//
// Memory: 4 bytes per row, and 36 (68 where beta2 is small) per step for at most kMaxHistory steps; then the
// whole table is brought up to date once and the history starts anew. The same happens when beta1, beta2 or
// epsilon change, so a schedule on one of those costs a pass over the table at each change; alpha may change
// at every step at no cost.
//
// Moments that are inf, after a gradient whose square overflows or from a checkpoint, stay so and act as in
// TensorFlow: an element whose v is inf moves no more. With epsilon 0, an element of a row becomes NaN, 0 /
// 0, in the first step in which it has never had a gradient, as in TensorFlow; a row that a later step makes
// is not there yet.
class ExactAdam final : public Optimizer {
 public:
  static constexpr int64_t kMaxHistory = 1 << 17;

  ExactAdam() : Optimizer(RuleInfoOf<Adam>()) {}

  Status Reserve(int64_t rows) override { return row_steps_.Reserve(rows); }
  void OnNewRow(int64_t row) override;
  Status Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
               const RowGradients& gradients, RowStore* store) override;
  bool has_catch_up() const override { return true; }
  void CatchUp(Executor& executor, Span<const int64_t> rows, RowStore* store) override;
  bool can_save_lag() const override { return true; }
  PastSteps past_steps() const override;
  int64_t last_current(int64_t row) const override { return steps() - row_steps_.missed(row); }
  Status RestorePastSteps(const PastSteps& past) override;
  void SetLastCurrent(int64_t row, int64_t step) override;

 private:
  void ForgetHistory() override;
  // Makes history_ one of these betas and this epsilon that has room for another step.
  void PrepareHistory(Executor& executor, float beta1, float beta2, float epsilon, RowStore* store);

  std::optional<AdamHistory> history_;  // none before the first step: no row has missed any
  float epsilon_ = 0.0f;                // of all steps in history_
  RowSteps row_steps_;                  // steps counted as in history_
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_EXACT_ADAM_H_
