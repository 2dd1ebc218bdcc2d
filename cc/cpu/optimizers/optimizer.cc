#include "cc/cpu/optimizers/optimizer.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cc/cpu/optimizers/exact_adam.h"
#include "cc/cpu/optimizers/row_loop.h"
#include "cc/optimizers/adam_history.h"
#include "cc/optimizers/rules.h"

namespace sok {

Status Optimizer::RestorePastSteps(const PastSteps& /*past*/) {
  return InvalidArgument("Optimizer '", name(), "' keeps no history of steps that rows have missed");
}

// Makes the optimizers of rules.h.

// An optimizer whose slots decay in every step for every row, while only touched rows' weights move. Keras'
// legacy Nadam, and its RMSprop without momentum, work like this. A step multiplies slot k by hyper-parameter
// number Rule::kDecayOfSlot[k]. The member decay[k] of a Rule covers the steps that a row has missed and the
// present step.
//
// The decay of untouched rows is postponed: the optimizer keeps for each row the step at which it was last
// current. When the row is next touched or read, its slots are multiplied by a power of the factors. If a
// factor changes, all rows are caught up first.
template <typename Rule>
class DecayingSlotsOptimizer final : public Optimizer {
 public:
  DecayingSlotsOptimizer() : Optimizer(RuleInfoOf<Rule>()) {}

  Status Reserve(int64_t rows) override { return row_steps_.Reserve(rows); }

  void OnNewRow(int64_t row) override {
    row_steps_.Use(row);
    row_steps_.SetCurrent(row);
  }

  Status Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
               const RowGradients& gradients, RowStore* store) override {
    SOK_RETURN_IF_ERROR(CheckHyper(hyper));
    SOK_RETURN_IF_ERROR(Reserve(store->rows()));
    PreparePowers(executor, hyper, store);
    row_steps_.Use(rows);
    const Rule rule(hyper.data());
    const int64_t dim = store->dim();
    ForEachRow(
        executor, rows, &gradients, store, [&](int64_t row) { row_steps_.PrefetchRow(row); },
        [&](int64_t i, const float* g, float* record) {
          Rule row_rule = rule;
          const uint32_t missed = row_steps_.missed(rows[i]);
          if (missed > 0) {
            for (int slot = 0; slot < kSlots; ++slot) {
              row_rule.decay[slot] = Decay(slot, int64_t{missed} + 1);
            }
          }
          ApplyToRecord<Rule>(row_rule, g, record, dim);
          row_steps_.SetCurrentAt(rows[i], row_steps_.now() + 1);
        });
    row_steps_.Advance();
    CountStep();
    return OkStatus();
  }

  bool has_catch_up() const override { return true; }

  bool StartsAnew(Span<const float> hyper) const override {
    if (powers_.empty()) return false;
    for (int slot = 0; slot < kSlots; ++slot) {
      if (factors_[slot] != hyper[Rule::kDecayOfSlot[slot]]) return true;
    }
    return row_steps_.now() >= kMaxSteps;
  }

  void CatchUp(Executor& executor, Span<const int64_t> rows, RowStore* store) override {
    if (powers_.empty()) return;
    const int64_t dim = store->dim();
    ForEachRow(
        executor, rows, /*gradients=*/nullptr, store, [&](int64_t row) { row_steps_.PrefetchRow(row); },
        [&](int64_t i, const float* /*g*/, float* record) {
          const uint32_t missed = row_steps_.missed(rows[i]);
          if (missed == 0) return;
          for (int slot = 0; slot < kSlots; ++slot) {
            const float decay = Decay(slot, missed);
            float* const values = record + (1 + slot) * dim;
            for (int64_t c = 0; c < dim; ++c) values[c] *= decay;
          }
          row_steps_.SetCurrent(rows[i]);
        });
  }

  void ForgetPastSteps() override {
    powers_.clear();
    row_steps_.Restart();
  }

 private:
  static constexpr int kSlots = kElementSlots<Rule>;
  // RowSteps counts in 32 bits and restarts at this step, long before an overflow.
  static constexpr uint32_t kMaxSteps = uint32_t{1} << 31;

  // The factor of a slot over `steps` >= 1 steps; see SlotDecay.
  float Decay(int slot, int64_t steps) const {
    return SlotDecay(factors_[slot], powers_[static_cast<size_t>(slot)].powers(), steps);
  }

  // Makes powers_ those of the factors in `hyper`. powers_ is empty before the first step.
  void PreparePowers(Executor& executor, Span<const float> hyper, RowStore* store) {
    if (StartsAnew(hyper)) {
      row_steps_.ForAllRows([&](Span<const int64_t> rows) { CatchUp(executor, rows, store); });
    } else if (!powers_.empty()) {
      return;
    }
    powers_.clear();
    for (int slot = 0; slot < kSlots; ++slot) {
      factors_[slot] = hyper[Rule::kDecayOfSlot[slot]];
      powers_.emplace_back(factors_[slot]);
    }
    row_steps_.Restart();
  }

  float factors_[kSlots] = {};      // of all steps that a row may have missed
  std::vector<PowerTable> powers_;  // of each factor
  RowSteps row_steps_;
};

// An optimizer that changes touched rows only, in the same way at every step with the same hyper-parameters.
template <typename Rule>
class TouchedRowsOptimizer final : public Optimizer {
 public:
  TouchedRowsOptimizer() : Optimizer(RuleInfoOf<Rule>()) {}

  Status Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
               const RowGradients& gradients, RowStore* store) override {
    SOK_RETURN_IF_ERROR(CheckHyper(hyper));
    store->BeginStep(steps());
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

namespace {

template <typename Rule>
std::unique_ptr<Optimizer> Make() {
  if constexpr (Rule::kUntouched == UntouchedRows::kStay) {
    return std::make_unique<TouchedRowsOptimizer<Rule>>();
  } else if constexpr (Rule::kUntouched == UntouchedRows::kSlotsDecay) {
    return std::make_unique<DecayingSlotsOptimizer<Rule>>();
  } else {
    static_assert(std::is_same_v<Rule, Adam>, "only Adam's missed steps have a closed form");
    return std::make_unique<ExactAdam>();
  }
}

template <typename... Rules>
std::unique_ptr<Optimizer> Make(const RuleInfo& rule, RuleList<Rules...>) {
  std::unique_ptr<Optimizer> made;
  ((rule.name == Rules::kName ? void(made = Make<Rules>()) : void()), ...);
  return made;
}

}  // namespace

StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(std::string_view name) {
  SOK_ASSIGN_OR_RETURN(const RuleInfo* const rule, FindRule(name));
  return Make(*rule, AllRules());
}

}  // namespace sok
