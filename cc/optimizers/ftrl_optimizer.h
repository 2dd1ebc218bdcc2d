#ifndef SOK_CC_OPTIMIZERS_FTRL_OPTIMIZER_H_
#define SOK_CC_OPTIMIZERS_FTRL_OPTIMIZER_H_

#include <string_view>

#include "cc/optimizers/elementwise_optimizer.h"
#include "cc/optimizers/ftrl.h"

namespace sok {

// FTRL, with square roots where the power is the usual -1/2: they vectorize, general powers do not.
class FtrlOptimizer final : public RuleOptimizer<Ftrl> {
 public:
  explicit FtrlOptimizer(std::string_view name) : RuleOptimizer<Ftrl>(name) {}

  Status Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
               const RowGradients& gradients, RowStore* store) override {
    SOK_RETURN_IF_ERROR(CheckHyper(hyper));
    if (hyper[1] == -0.5f) {
      ApplyShrinkage<true>(executor, hyper, rows, gradients, store);
    } else {
      ApplyShrinkage<false>(executor, hyper, rows, gradients, store);
    }
    CountStep();
    return OkStatus();
  }

 private:
  template <bool kSquareRoot>
  static void ApplyShrinkage(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
                             const RowGradients& gradients, RowStore* store) {
    if (hyper[5] != 0.0f) {
      ApplyToRows(executor, FtrlStep<kSquareRoot, true>(hyper.data()), rows, gradients, store);
    } else {
      ApplyToRows(executor, FtrlStep<kSquareRoot, false>(hyper.data()), rows, gradients, store);
    }
  }
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_FTRL_OPTIMIZER_H_
