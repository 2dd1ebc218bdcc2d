// Helpers of optimizers that postpone a step's effect on rows without a gradient: the step at which each row
// was last current, and powers of decay rates.
#ifndef SOK_CC_OPTIMIZERS_MISSED_STEPS_H_
#define SOK_CC_OPTIMIZERS_MISSED_STEPS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/prefetch.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/store/row_column.h"

namespace sok {

// The step at which each row was last current. Steps are counted from the last Restart. Threads may call
// SetCurrent, SetCurrentAt and missed for different rows at the same time.
class RowSteps {
 public:
  Status Reserve(int64_t rows) { return last_current_.Reserve(rows); }

  uint32_t now() const { return now_; }
  // Counts a step. Call SetCurrentAt for the rows that it updated, before or after.
  void Advance() { ++now_; }

  // The number of steps that `row` has missed.
  uint32_t missed(int64_t row) const { return now_ - last_current_[row]; }
  // Says that `row` is current as of now(), or as of `step`.
  void SetCurrent(int64_t row) { last_current_[row] = now_; }
  void SetCurrentAt(int64_t row, uint32_t step) { last_current_[row] = step; }
  void PrefetchRow(int64_t row) const { Prefetch<true>(&last_current_[row]); }

  // Rows from this number on have never been in use, and need no catch-up.
  int64_t rows_in_use() const { return rows_in_use_; }
  void Use(int64_t row) { rows_in_use_ = std::max(rows_in_use_, row + 1); }
  void Use(Span<const int64_t> rows) {
    for (int64_t row : rows) Use(row);
  }

  // Counts steps from 0 again; all rows count as current.
  void Restart() {
    for (int64_t row = 0; row < rows_in_use_; ++row) last_current_[row] = 0;
    now_ = 0;
  }

  // Calls visit(rows) on consecutive pieces of [0, rows_in_use()), for passes over the whole table.
  void ForAllRows(FunctionRef<void(Span<const int64_t> rows)> visit) const {
    constexpr int64_t kPiece = 1 << 16;
    std::vector<int64_t> rows;
    for (int64_t first = 0; first < rows_in_use_; first += kPiece) {
      rows.resize(static_cast<size_t>(std::min(kPiece, rows_in_use_ - first)));
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = first + static_cast<int64_t>(i);
      visit(rows);
    }
  }

 private:
  RowColumn<uint32_t> last_current_;
  uint32_t now_ = 0;
  int64_t rows_in_use_ = 0;
};

// base^n for 0 <= base <= 1 and n >= 0, to a few units in the last place of a double. It takes one
// multiplication of two table entries: one of the first kRow powers of base, and one of those of base^kRow.
class PowerTable {
 public:
  explicit PowerTable(double base) : base_(base), low_(kRow), high_(kRow) {
    for (int64_t i = 0; i < kRow; ++i) {
      low_[i] = std::pow(base, static_cast<double>(i));
      high_[i] = std::pow(base, static_cast<double>(i * kRow));
    }
  }

  double operator()(int64_t n) const {
    if (n >= kRow * kRow) return std::pow(base_, static_cast<double>(n));
    return low_[n % kRow] * high_[n / kRow];
  }

 private:
  static constexpr int64_t kRow = 512;
  double base_;
  std::vector<double> low_;
  std::vector<double> high_;
};

// A power of a decay rate as a float factor of moments; 0 if it is below the normal floats. A moment that
// small is negligible beside any later gradient, and arithmetic on subnormal numbers is slow.
inline float MomentDecay(double power) {
  constexpr double kSmallestNormalFloat = 1.17549435e-38;
  return power < kSmallestNormalFloat ? 0.0f : static_cast<float>(power);
}

// A moment after steps without a gradient, each of which multiplies it by `rate`; `decay` is MomentDecay of
// the power. An infinite moment stays infinite; times a `decay` of 0 it would become NaN.
inline float DecayedMoment(float moment, float rate, float decay) {
  return moment * (std::isinf(moment) ? rate : decay);
}

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_MISSED_STEPS_H_
