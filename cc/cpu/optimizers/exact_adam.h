#ifndef SOK_CC_CPU_OPTIMIZERS_EXACT_ADAM_H_
#define SOK_CC_CPU_OPTIMIZERS_EXACT_ADAM_H_

#include <cstdint>
#include <optional>

#include "cc/cpu/optimizers/optimizer.h"
#include "cc/cpu/optimizers/row_loop.h"
#include "cc/optimizers/adam.h"
#include "cc/optimizers/adam_history.h"

namespace sok {

// Adam as TensorFlow runs it on a dense variable: every step decays every row's moments and moves every row.
// A step here costs only the rows with a gradient. The optimizer keeps for each row the step at which it was
// last current, and applies the missed steps all at once when the row is next updated or read (see
// adam_history.h). The result differs from the dense optimizer in double precision by float rounding only.
//
// Memory: 4 bytes per row, and per step, for at most AdamHistory::kMaxSteps steps, 36 bytes (with a series of
// eight terms 68, without a series 4: see AdamSeries). Then all rows are caught up once and the history
// restarts. The same happens when beta1, beta2 or epsilon change, so each change costs a pass over the table.
// alpha may change at every step at no cost.
//
// Infinite moments, from a gradient whose square overflows or from a checkpoint, stay infinite and act as in
// TensorFlow: an element whose v is inf does not move. With epsilon 0, an element without a gradient so far
// becomes NaN (0 / 0) in a step, as in TensorFlow; but a row is not affected by steps before its insertion.
class ExactAdam final : public Optimizer {
 public:
  ExactAdam() : Optimizer(RuleInfoOf<Adam>()) {}

  Status Reserve(int64_t rows) override { return row_steps_.Reserve(rows); }
  void OnNewRow(int64_t row) override;
  Status Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
               const RowGradients& gradients, RowStore* store) override;
  bool has_catch_up() const override { return true; }
  bool StartsAnew(Span<const float> hyper) const override;
  void CatchUp(Executor& executor, Span<const int64_t> rows, RowStore* store) override;
  bool can_save_lag() const override { return true; }
  PastSteps past_steps() const override;
  int64_t last_current(int64_t row) const override { return steps() - row_steps_.missed(row); }
  Status RestorePastSteps(const PastSteps& past) override;
  void SetLastCurrent(int64_t row, int64_t step) override;
  void ForgetPastSteps() override;

 private:
  // Makes history_ one with the betas and the epsilon of `hyper`, and with room for another step.
  void PrepareHistory(Executor& executor, Span<const float> hyper, RowStore* store);

  std::optional<AdamHistory> history_;  // none before the first step
  float epsilon_ = 0.0f;                // of all steps in history_
  RowSteps row_steps_;                  // steps counted as in history_
};

}  // namespace sok

#endif  // SOK_CC_CPU_OPTIMIZERS_EXACT_ADAM_H_
