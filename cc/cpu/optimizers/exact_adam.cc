#include "cc/cpu/optimizers/exact_adam.h"

#include <algorithm>

#include "cc/base/vectorize.h"
#include "cc/cpu/optimizers/row_loop.h"

namespace sok {
namespace {

// Applies to a record [w | m | v] the steps that it has missed and, if `step` is not null, one more step with
// gradient g, in one pass over the elements.
template <int kTerms, typename Dim>
void CatchUpColumns(const AdamCatchUp<kTerms>& catch_up, const Adam* step, const float* __restrict g,
                    float* __restrict record, Dim dim) {
  float* __restrict w = record;
  float* __restrict m = record + dim;
  float* __restrict v = record + 2 * dim;
  if (step == nullptr) {
    for (int64_t c = 0; c < dim; ++c) catch_up(w[c], m[c], v[c]);
    return;
  }
  const Adam next = *step;
  for (int64_t c = 0; c < dim; ++c) {
    catch_up(w[c], m[c], v[c]);
    next(g[c], w[c], m[c], v[c]);
  }
}

// The same for a record last current at step t0, by going through the missed steps one by one.
void WalkRecord(const AdamHistoryView& history, int64_t t0, float epsilon, const Adam* step, const float* g,
                float* record, int64_t dim) {
  WalkMissedSteps(history, t0, epsilon, dim, record, record + dim, record + 2 * dim);
  if (step != nullptr) ApplyToRecord<Adam>(*step, g, record, dim);
}

// The same by kTerms terms of the series, or one by one if there is no series or it would lose an infinity.
template <int kTerms>
void CatchUpRecord(const AdamHistoryView& history, int64_t t0, float epsilon, const Adam* step,
                   const float* g, float* record, int64_t dim) {
  if constexpr (kTerms == 0) {
    WalkRecord(history, t0, epsilon, step, g, record, dim);
  } else {
    const AdamCatchUp<kTerms> catch_up = MakeAdamCatchUp<kTerms>(history, t0, epsilon);
    if (LosesInfinity(catch_up, record, dim)) {
      return WalkRecord(history, t0, epsilon, step, g, record, dim);
    }
    WithColumns(dim, [&](auto columns) { CatchUpColumns(catch_up, step, g, record, columns); });
  }
}

// Catches up the rows that have missed steps. Then all rows take `step`, if it is not null.
template <int kTerms>
void UpdateRows(Executor& executor, const AdamHistoryView& history, float epsilon, const Adam* step,
                Span<const int64_t> rows, const RowGradients* gradients, RowSteps* row_steps,
                RowStore* store) {
  const int64_t dim = store->dim();
  const uint32_t after = row_steps->now() + (step != nullptr ? 1 : 0);
  ForEachRow(
      executor, rows, gradients, store, [&](int64_t row) { row_steps->PrefetchRow(row); },
      [&](int64_t i, const float* g, float* record) {
        const uint32_t missed = row_steps->missed(rows[i]);
        if (missed > 0) {
          CatchUpRecord<kTerms>(history, row_steps->now() - missed, epsilon, step, g, record, dim);
        } else if (step != nullptr) {
          ApplyToRecord<Adam>(*step, g, record, dim);
        }
        row_steps->SetCurrentAt(rows[i], after);
      });
}

void UpdateRows(Executor& executor, const AdamHistoryView& history, float epsilon, const Adam* step,
                Span<const int64_t> rows, const RowGradients* gradients, RowSteps* row_steps,
                RowStore* store) {
  const int terms = epsilon == 0.0f ? std::min(history.terms, 1) : history.terms;
  switch (terms) {
    case 1:
      return UpdateRows<1>(executor, history, epsilon, step, rows, gradients, row_steps, store);
    case 4:
      return UpdateRows<4>(executor, history, epsilon, step, rows, gradients, row_steps, store);
    case 8:
      return UpdateRows<8>(executor, history, epsilon, step, rows, gradients, row_steps, store);
    default:
      return UpdateRows<0>(executor, history, epsilon, step, rows, gradients, row_steps, store);
  }
}

}  // namespace

void ExactAdam::OnNewRow(int64_t row) {
  row_steps_.Use(row);
  row_steps_.SetCurrent(row);
}

bool ExactAdam::StartsAnew(Span<const float> hyper) const {
  if (!history_.has_value()) return false;
  const bool same = history_->beta1() == hyper[1] && history_->beta2() == hyper[2] && epsilon_ == hyper[3];
  return !same || history_->steps() == AdamHistory::kMaxSteps;
}

void ExactAdam::PrepareHistory(Executor& executor, Span<const float> hyper, RowStore* store) {
  if (StartsAnew(hyper)) {
    row_steps_.ForAllRows([&](Span<const int64_t> rows) { CatchUp(executor, rows, store); });
  } else if (history_.has_value()) {
    return;
  }
  history_.emplace(hyper[1], hyper[2]);
  epsilon_ = hyper[3];
  row_steps_.Restart();
}

Status ExactAdam::Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
                        const RowGradients& gradients, RowStore* store) {
  SOK_RETURN_IF_ERROR(CheckHyper(hyper));
  SOK_RETURN_IF_ERROR(Reserve(store->rows()));
  PrepareHistory(executor, hyper, store);
  const Adam step(hyper.data());
  row_steps_.Use(rows);
  UpdateRows(executor, history_->view(), epsilon_, &step, rows, &gradients, &row_steps_, store);
  history_->Append(step.alpha);
  row_steps_.Advance();
  CountStep();
  return OkStatus();
}

void ExactAdam::CatchUp(Executor& executor, Span<const int64_t> rows, RowStore* store) {
  if (!history_.has_value()) return;
  UpdateRows(executor, history_->view(), epsilon_, nullptr, rows, nullptr, &row_steps_, store);
}

PastSteps ExactAdam::past_steps() const {
  PastSteps past;
  past.first_step = steps();
  if (!history_.has_value()) return past;
  past.beta1 = history_->beta1();
  past.beta2 = history_->beta2();
  past.epsilon = epsilon_;
  past.first_step = steps() - history_->steps();
  past.alphas = history_->alphas();
  return past;
}

Status ExactAdam::RestorePastSteps(const PastSteps& past) {
  const int64_t count = static_cast<int64_t>(past.alphas.size());
  if (past.first_step < 0 || past.first_step != steps() - count || count > AdamHistory::kMaxSteps) {
    return InvalidArgument("Optimizer '", name(), "' is at step ", steps(),
                           ", which does not fit a history of ", count, " steps after step ",
                           past.first_step);
  }
  for (const float alpha : past.alphas) {
    const float hyper[] = {alpha, past.beta1, past.beta2, past.epsilon};
    SOK_RETURN_IF_ERROR(CheckHyper(Span<const float>(hyper, 4)));
  }
  ForgetPastSteps();
  if (count == 0) return OkStatus();
  history_.emplace(past.beta1, past.beta2);
  epsilon_ = past.epsilon;
  for (const float alpha : past.alphas) {
    history_->Append(alpha);
    row_steps_.Advance();
  }
  for (int64_t row = 0; row < row_steps_.rows_in_use(); ++row) row_steps_.SetCurrent(row);
  return OkStatus();
}

void ExactAdam::SetLastCurrent(int64_t row, int64_t step) {
  const int64_t missed = std::min<int64_t>(std::max<int64_t>(steps() - step, 0), row_steps_.now());
  row_steps_.SetCurrentAt(row, static_cast<uint32_t>(row_steps_.now() - missed));
}

void ExactAdam::ForgetPastSteps() {
  history_.reset();
  row_steps_.Restart();
}

}  // namespace sok
