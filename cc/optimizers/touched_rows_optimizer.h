#ifndef SOK_CC_OPTIMIZERS_TOUCHED_ROWS_OPTIMIZER_H_
#define SOK_CC_OPTIMIZERS_TOUCHED_ROWS_OPTIMIZER_H_

#include <cstdint>

#include "cc/optimizers/optimizer.h"
#include "cc/optimizers/row_loop.h"

namespace sok {

// An optimizer that changes touched rows only, in the same way at every step with the same hyper-parameters.
template <typename Rule>
class TouchedRowsOptimizer final : public Optimizer {
 public:
  TouchedRowsOptimizer() : Optimizer(RuleInfoOf<Rule>()) {}

  Status Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
               const RowGradients& gradients, RowStore* store) override {
    SOK_RETURN_IF_ERROR(CheckHyper(hyper));
    const int64_t dim = store->dim();
    WithStep<Rule>(hyper.data(), [&](const auto& step) {
      ForEachRow(
          executor, rows, &gradients, store, NothingAhead(),
          [&](int64_t /*i*/, const float* g, float* record) { ApplyToRecord<Rule>(step, g, record, dim); });
    });
    CountStep();
    return OkStatus();
  }
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_TOUCHED_ROWS_OPTIMIZER_H_
