// One step of a rule on a row, by a group of lanes. Only .cu files include this header.
//
// Each struct here is an operation of a group of lanes on a record, [weights | slots...]. The lanes share its
// columns, kWidth at a time. `gradient(column)` returns the lane's columns of the row's gradient.
#ifndef SOK_CUDA_TRAINING_ROW_STEP_H_
#define SOK_CUDA_TRAINING_ROW_STEP_H_

#include <cstdint>

#include "cc/optimizers/rules.h"
#include "cuda/base/floats.h"
#include "cuda/base/part_launch.h"
#include "cuda/training/row_updates.h"

namespace sok {

// Calls each(column) for the columns of the lane.
template <int kWidth, typename Each>
__device__ __forceinline__ void ForColumns(const LaneGroup& group, int64_t dim, const Each& each) {
  for (int64_t column = group.lane() * kWidth; column < dim; column += group.lanes() * kWidth) each(column);
}

// Applies change(g, w, slots...) to the elements of some columns, like ApplyToElements.
template <int kSlots, int kWidth, typename Change>
__device__ __forceinline__ void ChangeElements(const Change& change, const Floats<kWidth>& g, float* record,
                                               int64_t dim, int64_t column) {
  static_assert(kSlots <= kMaxSlots && kMaxSlots == 3);
  Floats<kWidth> values[1 + kSlots];
  for (int s = 0; s <= kSlots; ++s) values[s] = LoadFloats<kWidth>(record + s * dim + column);
  for (int k = 0; k < kWidth; ++k) {
    if constexpr (kSlots == 0) change(g.v[k], values[0].v[k]);
    if constexpr (kSlots == 1) change(g.v[k], values[0].v[k], values[1].v[k]);
    if constexpr (kSlots == 2) change(g.v[k], values[0].v[k], values[1].v[k], values[2].v[k]);
    if constexpr (kSlots == 3) {
      change(g.v[k], values[0].v[k], values[1].v[k], values[2].v[k], values[3].v[k]);
    }
  }
  for (int s = 0; s <= kSlots; ++s) StoreFloats(values[s], record + s * dim + column);
}

template <int kSlots, int kWidth, typename Change, typename Gradient>
__device__ __forceinline__ void ChangeRow(const LaneGroup& group, const Change& change,
                                          const Gradient& gradient, float* record, int64_t dim) {
  ForColumns<kWidth>(group, dim, [&](int64_t column) {
    ChangeElements<kSlots>(change, gradient(column), record, dim, column);
  });
}

// SumOfSquares, computed by the lanes of a group and returned in every lane: its sixteen sums are distributed
// over the lanes, then added in the same tree. A group of fewer than 4 lanes has fewer than 16 columns.
__device__ inline double SumOfSquaresByLanes(const LaneGroup& group, const float* g, int64_t dim) {
  constexpr int kSums = static_cast<int>(kSumLanes);
  constexpr int kMostPerLane = 4;
  const int lanes = group.lanes() < kSums ? group.lanes() : kSums;
  const int per_lane = kSums / lanes < kMostPerLane ? kSums / lanes : kMostPerLane;
  const int64_t whole = dim / kSums * kSums;
  double rest = 0.0;
  for (int64_t c = whole; c < dim; ++c) rest += static_cast<double>(g[c]) * g[c];
  double sums[kMostPerLane] = {};
  for (int64_t first = 0; first < whole; first += kSums) {
    for (int k = 0; k < kMostPerLane; ++k) {
      if (k >= per_lane) break;
      const float value = g[first + group.lane() % lanes + k * lanes];
      sums[k] += static_cast<double>(value) * value;
    }
  }
  if (per_lane == 4) {
    sums[0] += sums[2];
    sums[1] += sums[3];
  }
  if (per_lane >= 2) sums[0] += sums[1];
  for (int half = lanes / 2; half > 0; half /= 2) {
    sums[0] += __shfl_xor_sync(group.mask(), sums[0], half, kLanesOfWarp);
  }
  return sums[0] + rest;
}

// A step of a rule with one-per-row slots. g[dim] is the whole gradient, visible to all lanes.
template <typename Rule, int kWidth, typename Step>
__device__ void StepRowWithRowSlots(const LaneGroup& group, const Step& step, const float* g, float* record,
                                    int64_t dim) {
  constexpr int kSlots = kElementSlots<Rule>;
  float* const kept = record + (1 + kSlots) * dim;
  float row_slots[kRowSlots<Rule>];
  for (int s = 0; s < kRowSlots<Rule>; ++s) row_slots[s] = kept[s];
  group.Sync();
  const auto change = [&] {
    if constexpr (Rule::kTakesSumOfSquares) {
      return step.ForSumOfSquares(static_cast<float>(SumOfSquaresByLanes(group, g, dim)), row_slots, dim);
    } else {
      return step.ForRow(g, row_slots, dim);
    }
  }();
  if (group.lane() == 0) {
    for (int s = 0; s < kRowSlots<Rule>; ++s) kept[s] = row_slots[s];
  }
  ChangeRow<kSlots, kWidth>(
      group, change, [&](int64_t column) { return LoadFloats<kWidth>(g + column); }, record, dim);
}

// A step of a rule that needs the norm of a slot. g[dim] is the whole gradient, visible to all lanes after a
// Sync.
template <typename Rule, int kWidth, typename Step>
__device__ void StepRowWithNorm(const LaneGroup& group, const Step& step, const float* g, float* record,
                                int64_t dim) {
  constexpr int kSlots = kElementSlots<Rule>;
  const auto gradient = [&](int64_t column) { return LoadFloats<kWidth>(g + column); };
  group.Sync();
  ChangeRow<kSlots, kWidth>(group, step, gradient, record, dim);
  group.Sync();
  const double sum = SumOfSquaresByLanes(group, record + (1 + Rule::kNormOfSlot) * dim, dim);
  group.Sync();
  ChangeRow<kSlots, kWidth>(group, step.ForNorm(sum), gradient, record, dim);
}

// Applies the decay of the steps that a row has missed, and takes a step.
template <typename Rule, int kWidth, typename Gradient>
__device__ void StepDecayingRow(const LaneGroup& group, const DecayView& past, const Rule& rule,
                                uint32_t missed, const Gradient& gradient, float* record, int64_t dim) {
  constexpr int kSlots = kElementSlots<Rule>;
  Rule row_rule = rule;
  if (missed > 0) {
    for (int s = 0; s < kSlots; ++s) {
      row_rule.decay[s] = SlotDecay(past.factors[s], past.powers[s], int64_t{missed} + 1);
    }
  }
  ChangeRow<kSlots, kWidth>(group, row_rule, gradient, record, dim);
}

// Applies the decay of `missed` steps.
template <int kSlots, int kWidth>
__device__ void DecayRow(const LaneGroup& group, const DecayView& past, uint32_t missed, float* record,
                         int64_t dim) {
  for (int s = 0; s < kSlots; ++s) {
    const float decay = SlotDecay(past.factors[s], past.powers[s], missed);
    float* const slot = record + (1 + s) * dim;
    ForColumns<kWidth>(group, dim, [&](int64_t column) {
      Floats<kWidth> values = LoadFloats<kWidth>(slot + column);
      MultiplyBy(decay, &values);
      StoreFloats(values, slot + column);
    });
  }
}

// The catch-up of exact Adam.
template <int kWidth>
class AdamCatchUpOfRow {
 public:
  __device__ AdamCatchUpOfRow(const LaneGroup& group, const AdamPastView& past, float* record, int64_t dim)
      : group_(group), past_(past), record_(record), dim_(dim) {}

  // The steps that the row has missed since its step `t0`, at least one.
  __device__ void CatchUp(int64_t t0) const {
    const int terms = past_.epsilon == 0.0f && past_.history.terms > 1 ? 1 : past_.history.terms;
    switch (terms) {
      case 1:
        return CatchUpBySeries<1>(t0);
      case 4:
        return CatchUpBySeries<4>(t0);
      case 8:
        return CatchUpBySeries<8>(t0);
      default:
        return Walk(t0);
    }
  }

 private:
  template <int kTerms>
  __device__ void CatchUpBySeries(int64_t t0) const {
    const AdamCatchUp<kTerms> catch_up = MakeAdamCatchUp<kTerms>(past_.history, t0, past_.epsilon);
    // The condition is the same in all lanes.
    if ((catch_up.decay1 == 0.0f || catch_up.decay2 == 0.0f) && AnyLosesInfinity(catch_up)) return Walk(t0);
    Change([&](float& w, float& m, float& v) { catch_up(w, m, v); });
  }

  template <typename CatchUp>
  __device__ bool AnyLosesInfinity(const CatchUp& catch_up) const {
    bool loses = false;
    ForColumns<kWidth>(group_, dim_, [&](int64_t column) {
      for (int64_t c = column; c < column + kWidth; ++c) {
        loses = loses ||
                LosesInfinity(catch_up.decay1, catch_up.decay2, record_[dim_ + c], record_[2 * dim_ + c]);
      }
    });
    return __any_sync(group_.mask(), loses) != 0;
  }

  __device__ void Walk(int64_t t0) const {
    Change([&](float& w, float& m, float& v) {
      WalkMissedSteps<1>(past_.history, t0, past_.epsilon, 1, &w, &m, &v);
    });
  }

  template <typename Missed>
  __device__ void Change(const Missed& missed) const {
    ChangeRow<2, kWidth>(
        group_, [&](float, float& w, float& m, float& v) { missed(w, m, v); },
        [](int64_t) { return EqualFloats<kWidth>(0.0f); }, record_, dim_);
  }

  const LaneGroup& group_;
  const AdamPastView& past_;
  float* const record_;
  const int64_t dim_;
};

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_ROW_STEP_H_
