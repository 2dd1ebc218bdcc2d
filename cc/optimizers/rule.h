// The definition of an optimizer, in one header. CONTRIBUTING.md lists the steps to add one.
//
// A rule is a struct that g++ and nvcc compile. It has these constants:
//
//   kName       its name in MakeOptimizer and in checkpoints
//   kSource     the paper, or the TensorFlow or Keras optimizer with the same arithmetic
//   kUntouched  what a step does to rows without a gradient (UntouchedRows)
//   kHyper      its hyper-parameters and their ranges, in the order of the values that a step receives
//   kSlots      the slots of a row, which follow its weights
//   kSamples    hyper-parameter values that its tests train with, [samples, hyper-parameters]
//
// and these functions:
//
//   explicit Rule(const float* hyper)                    one step
//   SOK_HOST_DEVICE operator()(g, w, slots...) const     updates one element: g is its gradient, w its
//                                                        weight, slots its element of each slot as wide as
//                                                        a row
//   Reference(const double* hyper, ReferenceRow row)     the same step on a whole row in double precision,
//                                                        straight from the formulas, for tests
//
// A rule with slots of one number per row also has
//
//   template <typename Dim>
//   SOK_HOST_DEVICE ForRow(const float* g, float* row_slots, Dim dim) const
//
// which updates those slots from the row's gradient and returns the function that updates the row's elements.
// If SumOfSquares is all that it needs of the gradient, many threads of a device can compute that sum
// together. The rule then sets kTakesSumOfSquares and has
//
//   template <typename Dim>
//   SOK_HOST_DEVICE ForSumOfSquares(float sum, float* row_slots, Dim dim) const
//
// A rule with kUntouched of kSlotsDecay also has
//
//   kDecayOfSlot   for each slot, the number of the hyper-parameter that a step multiplies it by
//   float decay[]  a member: what the step multiplies each slot by. The constructor sets the factors of one
//                  step, and the optimizer those of a row that has missed steps
//
// A rule whose new weights depend on the norm of one of the row's slots sets kNormOfSlot to the slot's
// number. Its operator() is called for all elements first and changes nothing but that slot. Then it has
//
//   SOK_HOST_DEVICE ForNorm(double sum_of_squares) const
//
// which returns the function that updates the elements, given the sum over the slot's elements.
//
// The arithmetic also runs on devices, so it uses neither the standard library nor virtual functions.
#ifndef SOK_CC_OPTIMIZERS_RULE_H_
#define SOK_CC_OPTIMIZERS_RULE_H_

#include <cstdint>

#include "cc/base/host_device.h"

namespace sok {

// The valid values of a hyper-parameter; all are finite.
enum class HyperRange {
  kFinite,       // any
  kNonNegative,  // >= 0
  kPositive,     // > 0
  kNonPositive,  // <= 0
  kUnit,         // [0, 1]
  kBelowOne,     // [0, 1)
};

struct HyperParameter {
  const char* name;  // as in error messages
  HyperRange range;
};

// A slot of a row: one number for each weight, or one number for the row. A null name marks an unused entry.
struct RuleSlot {
  constexpr RuleSlot() = default;
  constexpr RuleSlot(const char* name, const char* fill = nullptr, bool one_per_row = false)
      : name(name), fill(fill), one_per_row(one_per_row) {}

  const char* name = nullptr;
  const char* fill = nullptr;  // the hyper-parameter with the initial value; null: zeros
  bool one_per_row = false;    // such slots come last
};

constexpr int kMaxSlots = 3;

// What a step does to rows that have no gradient.
enum class UntouchedRows {
  kStay,        // nothing
  kSlotsDecay,  // weights stay; slot k is multiplied by hyper-parameter number Rule::kDecayOfSlot[k]
  kMove,        // weights and slots change as with a gradient of zero
};

// Defaults, which suit most rules.
struct RuleDefaults {
  static constexpr UntouchedRows kUntouched = UntouchedRows::kStay;
  // Whether the rule has WithVariant(hyper, body), which calls body with a step compiled for `hyper`.
  static constexpr bool kHasVariants = false;
  // Whether ForRow is ForSumOfSquares with SumOfSquares of the gradient.
  static constexpr bool kTakesSumOfSquares = false;
  // The slot whose norm the step needs (see ForNorm); -1: none.
  static constexpr int kNormOfSlot = -1;
  // Whether a step gives the same bits on the host and on devices: all its operations round as in IEEE 754.
  static bool HasSameBitsEverywhere(const float* /*hyper*/) { return true; }
};

// A row for Rule::Reference. slots[k] has `dim` numbers, or one.
struct ReferenceRow {
  int64_t dim;
  const double* g;
  double* w;
  double* const* slots;
};

// The number of a rule's slots with one number per row, or of those with one number per weight.
template <typename Rule>
constexpr int CountSlots(bool one_per_row) {
  int count = 0;
  for (const RuleSlot& slot : Rule::kSlots) {
    count += slot.name != nullptr && slot.one_per_row == one_per_row ? 1 : 0;
  }
  return count;
}
template <typename Rule>
constexpr int kElementSlots = CountSlots<Rule>(false);
template <typename Rule>
constexpr int kRowSlots = CountSlots<Rule>(true);

// Whether the elements of a row depend on each other: a NaN in one may reach all.
template <typename Rule>
constexpr bool kMixesElements = kRowSlots<Rule> > 0 || Rule::kNormOfSlot >= 0;

// The sum of squares of `dim` numbers. In double, so that the order of the terms hardly matters. Column c of
// the whole blocks of kSumLanes columns goes to sum c % kSumLanes: with a single sum, each addition waits for
// the one before, which doubled the time of a step on a row of 64. The columns after the last block have a
// separate sum, so that the lanes stay in vector registers. Devices add in the same order.
constexpr int64_t kSumLanes = 16;
template <typename Dim>
SOK_HOST_DEVICE double SumOfSquares(const float* __restrict g, Dim dim) {
  const int64_t whole = dim / kSumLanes * kSumLanes;
  double rest = 0.0;
  for (int64_t c = whole; c < dim; ++c) rest += static_cast<double>(g[c]) * g[c];
  if (whole == 0) return rest;
  double sums[kSumLanes] = {};
  for (int64_t first = 0; first < whole; first += kSumLanes) {
    for (int64_t lane = 0; lane < kSumLanes; ++lane) {
      sums[lane] += static_cast<double>(g[first + lane]) * g[first + lane];
    }
  }
  // With constant bounds, for lanes in registers.
  static_assert(kSumLanes == 16);
  for (int64_t lane = 0; lane < 8; ++lane) sums[lane] += sums[lane + 8];
  for (int64_t lane = 0; lane < 4; ++lane) sums[lane] += sums[lane + 4];
  return ((sums[0] + sums[2]) + (sums[1] + sums[3])) + rest;
}

// Calls body(step) with one step of the rule.
template <typename Rule, typename Body>
void WithStep(const float* hyper, const Body& body) {
  if constexpr (Rule::kHasVariants) {
    Rule::WithVariant(hyper, body);
  } else {
    body(Rule(hyper));
  }
}

// Applies step(g, w, slots...) to every element of a row with kSlots slots as wide as its weights. The plain
// loop over the columns vectorizes.
template <int kSlots, typename Step, typename Dim>
SOK_HOST_DEVICE void ApplyToElements(const Step& step, const float* __restrict g, float* __restrict record,
                                     Dim dim) {
  float* __restrict w = record;
  float* __restrict s0 = record + dim;
  float* __restrict s1 = record + 2 * dim;
  float* __restrict s2 = record + 3 * dim;
  static_assert(kSlots <= kMaxSlots && kMaxSlots == 3);
  for (int64_t c = 0; c < dim; ++c) {
    if constexpr (kSlots == 0) step(g[c], w[c]);
    if constexpr (kSlots == 1) step(g[c], w[c], s0[c]);
    if constexpr (kSlots == 2) step(g[c], w[c], s0[c], s1[c]);
    if constexpr (kSlots == 3) step(g[c], w[c], s0[c], s1[c], s2[c]);
  }
}

// One step on a record: `dim` weights, then the slots in their order. `step` comes from WithStep.
template <typename Rule, typename Step, typename Dim>
SOK_HOST_DEVICE void ApplyToRow(const Step& step, const float* g, float* record, Dim dim) {
  constexpr int kSlots = kElementSlots<Rule>;
  if constexpr (Rule::kNormOfSlot >= 0) {
    static_assert(kRowSlots<Rule> == 0, "no rule needs both");
    ApplyToElements<kSlots>(step, g, record, dim);
    const double sum = SumOfSquares(record + (1 + Rule::kNormOfSlot) * dim, dim);
    ApplyToElements<kSlots>(step.ForNorm(sum), g, record, dim);
  } else if constexpr (kRowSlots<Rule> == 0) {
    ApplyToElements<kSlots>(step, g, record, dim);
  } else {
    float* const row_slots = record + (1 + kSlots) * dim;
    ApplyToElements<kSlots>(step.ForRow(g, row_slots, dim), g, record, dim);
  }
}

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_RULE_H_
