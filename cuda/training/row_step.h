// One step of a rule on a row, by a group of lanes. Only .cu files include this header.
//
// Each function here is an operation of a group of lanes on a record, [weights | slots...]. The lanes share
// its columns, kWidth at a time. `gradient(column)` returns the lane's columns of the row's gradient.
#ifndef SOK_CUDA_TRAINING_ROW_STEP_H_
#define SOK_CUDA_TRAINING_ROW_STEP_H_

#include <cstdint>

#include "cc/optimizers/rules.h"
#include "cuda/base/floats.h"
#include "cuda/base/part_launch.h"
#include "cuda/store/record_numbers.h"
#include "cuda/store/row_store_view.h"
#include "cuda/training/row_updates.h"

namespace sok {

// Calls each(column) for the columns of the lane.
template <int kWidth, typename Each>
__device__ __forceinline__ void ForColumns(const LaneGroup& group, int64_t dim, const Each& each) {
  for (int64_t column = group.lane() * kWidth; column < dim; column += group.lanes() * kWidth) each(column);
}

// A record of floats. Part 0 is the weights, part s slot s - 1.
class FloatRecord {
 public:
  __device__ FloatRecord(char* record, int64_t dim) : floats_(reinterpret_cast<float*>(record)), dim_(dim) {}

  template <int kWidth>
  __device__ __forceinline__ Floats<kWidth> Load(int part, int64_t column) const {
    return LoadFloats<kWidth>(floats_ + part * dim_ + column);
  }
  template <int kWidth>
  __device__ __forceinline__ void Store(const Floats<kWidth>& values, int part, int64_t column) const {
    StoreFloats(values, floats_ + part * dim_ + column);
  }
  // A slot as wide as the row, and the slots of one number after that many others.
  __device__ float* slot(int s) const { return floats_ + (1 + s) * dim_; }
  __device__ float* row_slots(int wide_slots) const { return floats_ + (1 + wide_slots) * dim_; }

 private:
  float* const floats_;
  const int64_t dim_;
};

// `n` numbers of a type, at most four; the others are 0. The way of rows that vectors do not fit, apart so
// that its registers do not count.
__device__ __attribute__((noinline)) inline Floats<4> LoadSome(FloatType type, const char* numbers, int64_t k,
                                                               int64_t n) {
  Floats<4> values = EqualFloats<4>(0.0f);
  for (int i = 0; i < 4; ++i) {
    if (i < n) values.v[i] = NumberAt(type, numbers, k + i);
  }
  return values;
}

// A record that has numbers in 16 bits, in a step that changes every number once. Four columns are loaded and
// stored at a time, or as many as there are.
class RoundedRecord {
 public:
  // `in_fours`: whether four adjacent numbers of a slot or of the weights are aligned to their size.
  __device__ RoundedRecord(const RowStoreView& table, char* record, int64_t step, bool in_fours)
      : table_(table), record_(record), slots_(record + table.shape.SlotsAt(table.dim)), in_fours_(in_fours) {
    if (!table.shape.has_stream) return;
    const char* const stream = record + table.shape.StreamAt(table.dim, table.width);
    base_ = RoundingBase(*reinterpret_cast<const uint32_t*>(stream), step);
  }

  template <int kWidth>
  __device__ __forceinline__ Floats<kWidth> Load(int part, int64_t column) const {
    const FloatType type = TypeOf(part);
    const char* const numbers = part == 0 ? record_ : slots_;
    const int64_t k = IndexOf(part, column);
    if constexpr (kWidth == 1) {
      return {{NumberAt(type, numbers, k)}};
    } else {
      if (!in_fours_) return LoadSome(type, numbers, k, table_.dim - column);
      if (type == FloatType::kFloat32) return LoadFloats<4>(reinterpret_cast<const float*>(numbers) + k);
      return FloatsOf(type, LoadHalves<4>(reinterpret_cast<const uint16_t*>(numbers) + k));
    }
  }

  template <int kWidth>
  __device__ __forceinline__ void Store(const Floats<kWidth>& values, int part, int64_t column) const {
    static_assert(kWidth == 4);
    const FloatType type = TypeOf(part);
    char* const numbers = part == 0 ? record_ : slots_;
    const int64_t k = IndexOf(part, column);
    const int64_t n = in_fours_ ? 4 : table_.dim - column;
    if (type == FloatType::kFloat32) {
      auto* const floats = reinterpret_cast<float*>(numbers) + k;
      if (in_fours_) return StoreFloats(values, floats);
      for (int i = 0; i < 4; ++i) {
        if (i < n) floats[i] = values.v[i];
      }
      return;
    }
    Halves<4> halves;
    for (int i = 0; i < 4; ++i) halves.v[i] = Round(type, values.v[i], part * table_.dim + column + i);
    auto* const to = reinterpret_cast<uint16_t*>(numbers) + k;
    if (in_fours_) return StoreHalves(halves, to);
    for (int i = 0; i < 4; ++i) {
      if (i < n) to[i] = halves.v[i];
    }
  }

  __device__ float* row_slots(int /*wide_slots*/) const {
    return reinterpret_cast<float*>(record_ + table_.shape.RowSlotsAt(table_.dim, table_.width));
  }

 private:
  __device__ FloatType TypeOf(int part) const {
    return part == 0 ? table_.shape.weight_type() : table_.shape.slot_type();
  }
  // The number of a column of a part among the weights, or among those of all slots.
  __device__ int64_t IndexOf(int part, int64_t column) const {
    return part == 0 ? column : (part - 1) * table_.dim + column;
  }
  // `c`: the number's among the floats of the record.
  __device__ __forceinline__ uint16_t Round(FloatType type, float value, int64_t c) const {
    if (!table_.shape.has_stream) return ToHalf(type, value);
    return ToHalf(type, value, RoundingNoise(base_, static_cast<uint32_t>(c)));
  }

  const RowStoreView& table_;
  char* const record_;
  char* const slots_;
  const bool in_fours_;
  uint32_t base_ = 0;
};

// Applies change(g, w, slots...) to the elements of some columns, like ApplyToElements.
template <int kSlots, int kWidth, typename Change, typename Record>
__device__ __forceinline__ void ChangeElements(const Change& change, const Floats<kWidth>& g,
                                               const Record& record, int64_t column) {
  static_assert(kSlots <= kMaxSlots && kMaxSlots == 3);
  Floats<kWidth> values[1 + kSlots];
  for (int s = 0; s <= kSlots; ++s) values[s] = record.template Load<kWidth>(s, column);
  for (int k = 0; k < kWidth; ++k) {
    if constexpr (kSlots == 0) change(g.v[k], values[0].v[k]);
    if constexpr (kSlots == 1) change(g.v[k], values[0].v[k], values[1].v[k]);
    if constexpr (kSlots == 2) change(g.v[k], values[0].v[k], values[1].v[k], values[2].v[k]);
    if constexpr (kSlots == 3) {
      change(g.v[k], values[0].v[k], values[1].v[k], values[2].v[k], values[3].v[k]);
    }
  }
  for (int s = 0; s <= kSlots; ++s) record.Store(values[s], s, column);
}

template <int kSlots, int kWidth, typename Change, typename Gradient, typename Record>
__device__ __forceinline__ void ChangeRow(const LaneGroup& group, const Change& change,
                                          const Gradient& gradient, const Record& record, int64_t dim) {
  ForColumns<kWidth>(
      group, dim, [&](int64_t column) { ChangeElements<kSlots>(change, gradient(column), record, column); });
}

// SumOfSquares of number(0 .. dim - 1), computed by the lanes of a group and returned in every lane: its
// sixteen sums are distributed over the lanes, then added in the same tree. A group of fewer than 4 lanes has
// fewer than 16 columns.
template <typename Number>
__device__ __forceinline__ double SumOfSquaresByLanes(const LaneGroup& group, const Number& number,
                                                      int64_t dim) {
  constexpr int kSums = static_cast<int>(kSumLanes);
  constexpr int kMostPerLane = 4;
  const int lanes = group.lanes() < kSums ? group.lanes() : kSums;
  const int per_lane = kSums / lanes < kMostPerLane ? kSums / lanes : kMostPerLane;
  const int64_t whole = dim / kSums * kSums;
  double rest = 0.0;
  for (int64_t c = whole; c < dim; ++c) {
    const float value = number(c);
    rest += static_cast<double>(value) * value;
  }
  double sums[kMostPerLane] = {};
  for (int64_t first = 0; first < whole; first += kSums) {
    for (int k = 0; k < kMostPerLane; ++k) {
      if (k >= per_lane) break;
      const float value = number(first + group.lane() % lanes + k * lanes);
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

// A step of a rule with one-per-row slots. g[dim] is the whole gradient, visible to all lanes, of which
// gradient(column) returns some columns.
template <typename Rule, int kWidth, typename Step, typename Gradient, typename Record>
__device__ void StepRowWithRowSlots(const LaneGroup& group, const Step& step, const float* g,
                                    const Gradient& gradient, const Record& record, int64_t dim) {
  constexpr int kSlots = kElementSlots<Rule>;
  float* const kept = record.row_slots(kSlots);
  float row_slots[kRowSlots<Rule>];
  for (int s = 0; s < kRowSlots<Rule>; ++s) row_slots[s] = kept[s];
  group.Sync();
  const auto change = [&] {
    if constexpr (Rule::kTakesSumOfSquares) {
      const double sum = SumOfSquaresByLanes(group, [&](int64_t c) { return g[c]; }, dim);
      return step.ForSumOfSquares(static_cast<float>(sum), row_slots, dim);
    } else {
      return step.ForRow(g, row_slots, dim);
    }
  }();
  if (group.lane() == 0) {
    for (int s = 0; s < kRowSlots<Rule>; ++s) kept[s] = row_slots[s];
  }
  ChangeRow<kSlots, kWidth>(group, change, gradient, record, dim);
}

// A step of a rule that needs the norm of a slot. g[dim] is the whole gradient, visible to all lanes after a
// Sync, of which gradient(column) returns some columns.
template <typename Rule, int kWidth, typename Step, typename Gradient>
__device__ void StepRowWithNorm(const LaneGroup& group, const Step& step, const float* /*g*/,
                                const Gradient& gradient, const FloatRecord& record, int64_t dim) {
  constexpr int kSlots = kElementSlots<Rule>;
  group.Sync();
  ChangeRow<kSlots, kWidth>(group, step, gradient, record, dim);
  group.Sync();
  const float* const slot = record.slot(Rule::kNormOfSlot);
  const double sum = SumOfSquaresByLanes(group, [&](int64_t c) { return slot[c]; }, dim);
  group.Sync();
  ChangeRow<kSlots, kWidth>(group, step.ForNorm(sum), gradient, record, dim);
}

// The same for a record whose numbers are rounded when they are stored: the norm is that of the slot before
// it is rounded, so what the first pass changes is computed twice and not stored.
template <typename Rule, int kWidth, typename Step, typename Gradient>
__device__ void StepRowWithNorm(const LaneGroup& group, const Step& step, const float* g,
                                const Gradient& gradient, const RoundedRecord& record, int64_t dim) {
  constexpr int kSlots = kElementSlots<Rule>;
  static_assert(kSlots == 2);
  group.Sync();
  const auto stepped = [&](int64_t c) {
    float w = record.Load<1>(0, c).v[0];
    float slots[kSlots];
    for (int s = 0; s < kSlots; ++s) slots[s] = record.Load<1>(1 + s, c).v[0];
    step(g[c], w, slots[0], slots[1]);
    return slots[Rule::kNormOfSlot];
  };
  const double sum = SumOfSquaresByLanes(group, stepped, dim);
  group.Sync();
  const auto second = step.ForNorm(sum);
  const auto both = [&](float g_of, float& w, float& slot0, float& slot1) {
    step(g_of, w, slot0, slot1);
    second(g_of, w, slot0, slot1);
  };
  ChangeRow<kSlots, kWidth>(group, both, gradient, record, dim);
}

// Applies the decay of the steps that a row has missed, and takes a step.
template <typename Rule, int kWidth, typename Gradient>
__device__ void StepDecayingRow(const LaneGroup& group, const DecayView& past, const Rule& rule,
                                uint32_t missed, const Gradient& gradient, const FloatRecord& record,
                                int64_t dim) {
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
__device__ void DecayRow(const LaneGroup& group, const DecayView& past, uint32_t missed,
                         const FloatRecord& record, int64_t dim) {
  for (int s = 0; s < kSlots; ++s) {
    const float decay = SlotDecay(past.factors[s], past.powers[s], missed);
    float* const slot = record.slot(s);
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
  __device__ AdamCatchUpOfRow(const LaneGroup& group, const AdamPastView& past, const FloatRecord& record,
                              int64_t dim)
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
        loses =
            loses || LosesInfinity(catch_up.decay1, catch_up.decay2, record_.slot(0)[c], record_.slot(1)[c]);
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
  const FloatRecord record_;
  const int64_t dim_;
};

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_ROW_STEP_H_
