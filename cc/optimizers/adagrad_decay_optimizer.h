#ifndef SOK_CC_OPTIMIZERS_ADAGRAD_DECAY_OPTIMIZER_H_
#define SOK_CC_OPTIMIZERS_ADAGRAD_DECAY_OPTIMIZER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cc/optimizers/adagrad_decay.h"
#include "cc/optimizers/elementwise_optimizer.h"
#include "cc/optimizers/row_loop.h"
#include "cc/optimizers/rule_optimizer.h"

namespace sok {

// Adagrad with accumulators that decay. Behind the accumulators a row has its count of decays, a float, which
// is exact up to 2^24; callers give periods no larger than that.
class AdagradDecayOptimizer final : public RuleOptimizer<AdagradDecay> {
 public:
  explicit AdagradDecayOptimizer(std::string_view name) : RuleOptimizer<AdagradDecay>(name) {}

  std::vector<SlotSpec> Slots(int64_t dim, Span<const float> hyper) const override {
    return {SlotSpec{dim, AdagradDecay::SlotFill(hyper.data(), 0)}, SlotSpec{1, 0.0f}};
  }

  std::vector<std::string> slot_names() const override { return {"accumulator", "decay_power"}; }

  Status Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
               const RowGradients& gradients, RowStore* store) override {
    SOK_RETURN_IF_ERROR(CheckHyper(hyper));
    const AdagradDecay with_decay(hyper.data());
    const AdagradDecay without_decay = with_decay.WithoutDecay();
    const float period = hyper[3];
    const int64_t dim = store->dim();
    const auto update = [&](int64_t /*i*/, const float* g, float* record) {
      float& decays = record[2 * dim];
      const bool decay = period > decays;
      if (decay) decays += 1.0f;
      ApplyToRecord(decay ? with_decay : without_decay, g, record, dim);
    };
    ForEachRow(executor, rows, &gradients, store, NothingAhead(), update);
    CountStep();
    return OkStatus();
  }
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAGRAD_DECAY_OPTIMIZER_H_
