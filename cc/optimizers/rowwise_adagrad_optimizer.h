#ifndef SOK_CC_OPTIMIZERS_ROWWISE_ADAGRAD_OPTIMIZER_H_
#define SOK_CC_OPTIMIZERS_ROWWISE_ADAGRAD_OPTIMIZER_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "cc/optimizers/row_loop.h"
#include "cc/optimizers/rowwise_adagrad.h"
#include "cc/optimizers/rule_optimizer.h"

namespace sok {

// Adagrad with one accumulator per row.
class RowwiseAdagradOptimizer final : public RuleOptimizer<RowwiseAdagrad> {
 public:
  explicit RowwiseAdagradOptimizer(std::string_view name) : RuleOptimizer<RowwiseAdagrad>(name) {}

  std::vector<SlotSpec> Slots(int64_t /*dim*/, Span<const float> hyper) const override {
    return {SlotSpec{1, RowwiseAdagrad::SlotFill(hyper.data(), 0)}};
  }

  Status Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
               const RowGradients& gradients, RowStore* store) override {
    SOK_RETURN_IF_ERROR(CheckHyper(hyper));
    const RowwiseAdagrad rule(hyper.data());
    const int64_t dim = store->dim();
    const auto update = [&](int64_t /*i*/, const float* g, float* record) {
      const float divisor = rule.Divisor(SumOfSquares(g, dim), static_cast<int>(dim), record[dim]);
      for (int64_t c = 0; c < dim; ++c) rule(g[c], divisor, record[c]);
    };
    ForEachRow(executor, rows, &gradients, store, NothingAhead(), update);
    CountStep();
    return OkStatus();
  }

 private:
  // In double, so that the order of the terms hardly shows.
  static float SumOfSquares(const float* g, int64_t dim) {
    double sum = 0.0;
    for (int64_t c = 0; c < dim; ++c) sum += static_cast<double>(g[c]) * g[c];
    return static_cast<float>(sum);
  }
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ROWWISE_ADAGRAD_OPTIMIZER_H_
