#ifndef SOK_CC_OPTIMIZERS_ELEMENTWISE_OPTIMIZER_H_
#define SOK_CC_OPTIMIZERS_ELEMENTWISE_OPTIMIZER_H_

#include <cstdint>
#include <string_view>

#include "cc/base/columns.h"
#include "cc/optimizers/row_loop.h"
#include "cc/optimizers/rule_optimizer.h"

namespace sok {

// Applies rule(g, w, slots...) to every element of a row: plain loops over the columns, which vectorize.
template <typename Rule, typename Dim>
void ApplyToColumns(const Rule& rule, const float* __restrict g, float* __restrict record, Dim dim) {
  float* __restrict w = record;
  float* __restrict s0 = record + dim;
  float* __restrict s1 = record + 2 * dim;
  float* __restrict s2 = record + 3 * dim;
  static_assert(Rule::kSlots <= 3);
  for (int64_t c = 0; c < dim; ++c) {
    if constexpr (Rule::kSlots == 0) rule(g[c], w[c]);
    if constexpr (Rule::kSlots == 1) rule(g[c], w[c], s0[c]);
    if constexpr (Rule::kSlots == 2) rule(g[c], w[c], s0[c], s1[c]);
    if constexpr (Rule::kSlots == 3) rule(g[c], w[c], s0[c], s1[c], s2[c]);
  }
}

template <typename Rule>
void ApplyToRecord(const Rule& rule, const float* g, float* record, int64_t dim) {
  WithColumns(dim, [&](auto columns) { ApplyToColumns(rule, g, record, columns); });
}

// Runs `rule` over distinct rows with their gradients.
template <typename Rule>
void ApplyToRows(Executor& executor, const Rule& rule, Span<const int64_t> rows,
                 const RowGradients& gradients, RowStore* store) {
  const int64_t dim = store->dim();
  ForEachRow(executor, rows, &gradients, store, NothingAhead(),
             [&](int64_t /*i*/, const float* g, float* record) { ApplyToRecord(rule, g, record, dim); });
}

// An optimizer that changes touched rows only, each element by itself, made from the hyper-parameters alone.
template <typename Rule>
class ElementwiseOptimizer final : public RuleOptimizer<Rule> {
 public:
  explicit ElementwiseOptimizer(std::string_view name) : RuleOptimizer<Rule>(name) {}

  Status Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
               const RowGradients& gradients, RowStore* store) override {
    SOK_RETURN_IF_ERROR(this->CheckHyper(hyper));
    ApplyToRows(executor, Rule(hyper.data()), rows, gradients, store);
    this->CountStep();
    return OkStatus();
  }
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ELEMENTWISE_OPTIMIZER_H_
