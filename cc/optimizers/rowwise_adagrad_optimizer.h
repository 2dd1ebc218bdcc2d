#ifndef SOK_CC_OPTIMIZERS_ROWWISE_ADAGRAD_OPTIMIZER_H_
#define SOK_CC_OPTIMIZERS_ROWWISE_ADAGRAD_OPTIMIZER_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "cc/base/columns.h"
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
      WithColumns(dim, [&](auto columns) { ApplyToRow(rule, g, record, columns); });
    };
    ForEachRow(executor, rows, &gradients, store, NothingAhead(), update);
    CountStep();
    return OkStatus();
  }

 private:
  template <typename Dim>
  static void ApplyToRow(const RowwiseAdagrad& rule, const float* __restrict g, float* __restrict record,
                         Dim dim) {
    const float divisor = rule.Divisor(SumOfSquares(g, dim), static_cast<int>(dim), record[dim]);
    for (int64_t c = 0; c < dim; ++c) rule(g[c], divisor, record[c]);
  }

  // In double, so that the order of the terms hardly shows. Of whole blocks of kLanes columns, column c goes
  // to sum c % kLanes: one sum would have each addition wait for the one before, which took as long as all
  // else that a step does to a row of 64. Columns behind the last block have a sum of their own; going
  // through the lanes one by one, they would keep vectors waiting for them.
  template <typename Dim>
  static float SumOfSquares(const float* __restrict g, Dim dim) {
    constexpr int64_t kLanes = 16;
    const int64_t whole = dim / kLanes * kLanes;
    double rest = 0.0;
    for (int64_t c = whole; c < dim; ++c) rest += static_cast<double>(g[c]) * g[c];
    if (whole == 0) return static_cast<float>(rest);
    double sums[kLanes] = {};
    for (int64_t first = 0; first < whole; first += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        sums[lane] += static_cast<double>(g[first + lane]) * g[first + lane];
      }
    }
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
    }
    return static_cast<float>(sums[0] + rest);
  }
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ROWWISE_ADAGRAD_OPTIMIZER_H_
