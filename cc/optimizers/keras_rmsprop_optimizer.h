#ifndef SOK_CC_OPTIMIZERS_KERAS_RMSPROP_OPTIMIZER_H_
#define SOK_CC_OPTIMIZERS_KERAS_RMSPROP_OPTIMIZER_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "cc/optimizers/elementwise_optimizer.h"
#include "cc/optimizers/keras_rmsprop.h"
#include "cc/optimizers/power_table.h"
#include "cc/optimizers/row_steps.h"

namespace sok {

// Keras' legacy RMSprop (`Rule` is KerasRmsprop or KerasRmspropCentered). The decay of untouched rows'
// averages is postponed: a row carries the step at which it was last current and gets rho^missed when it is
// next touched. When rho changes, the whole table is brought up to date first.
template <typename Rule>
class KerasRmspropOptimizer final : public RuleOptimizer<Rule> {
 public:
  explicit KerasRmspropOptimizer(std::string_view name) : RuleOptimizer<Rule>(name) {}

  Status Reserve(int64_t rows) override { return row_steps_.Reserve(rows); }

  void OnNewRow(int64_t row) override {
    row_steps_.Use(row);
    row_steps_.SetCurrent(row);
  }

  Status Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
               const RowGradients& gradients, RowStore* store) override {
    SOK_RETURN_IF_ERROR(this->CheckHyper(hyper));
    SOK_RETURN_IF_ERROR(Reserve(store->rows()));
    PreparePowers(executor, hyper[1], store);
    row_steps_.Use(rows);
    const Rule rule(hyper.data());
    const int64_t dim = store->dim();
    ForEachRow(
        executor, rows, &gradients, store, [&](int64_t row) { row_steps_.AskFor(row); },
        [&](int64_t i, const float* g, float* record) {
          Rule row_rule = rule;
          const uint32_t missed = row_steps_.missed(rows[i]);
          if (missed > 0) row_rule.decay = static_cast<float>((*powers_)(int64_t{missed} + 1));
          ApplyToRecord(row_rule, g, record, dim);
          row_steps_.SetCurrentAt(rows[i], row_steps_.now() + 1);
        });
    row_steps_.Advance();
    this->CountStep();
    return OkStatus();
  }

  bool has_catch_up() const override { return true; }

  void CatchUp(Executor& executor, Span<const int64_t> rows, RowStore* store) override {
    if (!powers_.has_value()) return;
    const int64_t dim = store->dim();
    ForEachRow(
        executor, rows, /*gradients=*/nullptr, store, [&](int64_t row) { row_steps_.AskFor(row); },
        [&](int64_t i, const float* /*g*/, float* record) {
          const uint32_t missed = row_steps_.missed(rows[i]);
          if (missed == 0) return;
          const float decay = static_cast<float>((*powers_)(missed));
          for (int64_t c = dim; c < (1 + Rule::kSlots) * dim; ++c) record[c] *= decay;
          row_steps_.SetCurrent(rows[i]);
        });
  }

 private:
  // Row steps are 32 bits wide and start anew long before they run out.
  static constexpr uint32_t kMaxSteps = uint32_t{1} << 31;

  void ForgetHistory() override {
    powers_.reset();
    row_steps_.Restart();
  }

  // Makes powers_ those of `rho`; none before the first step, when no row has missed any.
  void PreparePowers(Executor& executor, float rho, RowStore* store) {
    if (powers_.has_value()) {
      if (rho_ == rho && row_steps_.now() < kMaxSteps) return;
      row_steps_.ForAllRows([&](Span<const int64_t> rows) { CatchUp(executor, rows, store); });
    }
    powers_.emplace(rho);
    rho_ = rho;
    row_steps_.Restart();
  }

  float rho_ = 0.0f;  // of all steps that a row can have missed
  std::optional<PowerTable> powers_;
  RowSteps row_steps_;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_KERAS_RMSPROP_OPTIMIZER_H_
