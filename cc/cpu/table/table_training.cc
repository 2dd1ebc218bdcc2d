// The part of Table that trains rows.
#include <algorithm>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/vectorize.h"
#include "cc/cpu/dedup/dedup.h"
#include "cc/cpu/pooling/segment_sum.h"
#include "cc/cpu/table/table.h"
#include "cc/table/table_errors.h"

namespace sok {
namespace {

// The rows of the references that are still current, and their gradients. `grads` is empty if all are
// current.
struct CurrentGradients {
  std::vector<int64_t> rows;
  std::vector<float> grads;
};

CurrentGradients DropStale(const Table& table, Span<const int64_t> references, const float* grads) {
  CurrentGradients current;
  current.rows.reserve(references.size());
  for (const int64_t reference : references) {
    if (table.IsCurrent(reference)) current.rows.push_back(RowOf(reference));
  }
  if (static_cast<int64_t>(current.rows.size()) == references.size()) return current;
  const int64_t dim = table.options().dim;
  current.grads.reserve(current.rows.size() * dim + 1);
  for (int64_t i = 0; i < references.size(); ++i) {
    if (!table.IsCurrent(references[i])) continue;
    current.grads.insert(current.grads.end(), grads + i * dim, grads + (i + 1) * dim);
  }
  return current;
}

}  // namespace

Status Table::BringUpToDate(Executor& executor, Span<const int64_t> rows, RowUse use) {
  SOK_RETURN_IF_ERROR(BringUp(executor, rows, has_catch_up() ? RowUse::kWrite : use));
  if (!has_catch_up()) return OkStatus();
  optimizer_->CatchUp(executor, rows, &store_);
  MarkChanged(rows);
  return OkStatus();
}

void Table::MarkChanged(Span<const int64_t> rows) {
  if (!changes_.tracks()) return;
  for (const int64_t row : rows) changes_.MarkChanged(row);
}

void Table::MakeReferences(Span<int64_t> rows) const {
  if (!directory_.has_erased()) return;
  for (int64_t& row : rows) {
    if (row != kAbsent) row = directory_.Reference(row);
  }
}

Status Table::CheckReferences(Span<const int64_t> references, int64_t lowest) const {
  const int64_t limit = row_limit();
  const bool has_generations = directory_.has_erased();
  if (!has_generations) {
    // Nearly always all references pass, and a loop without an exit is several times as fast.
    bool all_pass = true;
    RunVectorized([&] {
      for (const int64_t row : references) all_pass &= row >= lowest && row < limit;
    });
    if (all_pass) return OkStatus();
  }
  for (const int64_t reference : references) {
    const int64_t row = has_generations && reference >= 0 ? RowOf(reference) : reference;
    if (row >= lowest && row < limit) continue;
    return NoRowNumbered(options_, row, size());
  }
  return OkStatus();
}

Status Table::Named(const Status& status) const { return NamedError(options_, status); }

Status Table::CheckOptimizer(const Optimizer& optimizer, Span<const float> hyper) const {
  if (!layout().is_plain() && optimizer.has_catch_up()) {
    return WouldRoundManyStepsOnce(options_, optimizer.name());
  }
  return optimizer.CheckHyper(hyper);
}

Status Table::AttachOptimizer(Executor& executor, std::string_view name, Span<const float> hyper) {
  auto made = MakeOptimizer(name);
  SOK_RETURN_IF_ERROR(Named(made.status()));
  std::unique_ptr<Optimizer> optimizer = std::move(made.value());
  SOK_RETURN_IF_ERROR(Named(CheckOptimizer(*optimizer, hyper)));
  SOK_RETURN_IF_ERROR(Named(optimizer->Reserve(store_.rows())));
  SOK_RETURN_IF_ERROR(
      Named(store_.SetSlots(optimizer->Slots(options_.dim, hyper), executor, [this](int64_t row) {
        return row < row_limit() && in_use(row) ? key(row) : 0;
      })));
  optimizer_ = std::move(optimizer);
  first_hyper_.assign(hyper.begin(), hyper.end());
  for (int64_t row = 0; row < row_limit(); ++row) optimizer_->OnNewRow(row);
  return OkStatus();
}

Status Table::CheckStep(std::string_view optimizer, Span<const float> hyper,
                        Span<const int64_t> references) const {
  SOK_RETURN_IF_ERROR(CheckReferences(references, /*lowest=*/0));
  if (optimizer_ == nullptr) {
    const auto made = MakeOptimizer(optimizer);
    SOK_RETURN_IF_ERROR(Named(made.status()));
    return Named(CheckOptimizer(*made.value(), hyper));
  }
  if (optimizer_->name() != optimizer) {
    return TrainedByAnother(options_, optimizer_->name(), optimizer);
  }
  return Named(optimizer_->CheckHyper(hyper));
}

Status Table::ApplyGradients(const EngineContext& context, std::string_view optimizer,
                             Span<const float> hyper, Span<const int64_t> references, const float* grads,
                             bool distinct) {
  const MutexLock lock(mutex_);
  BeginCall();
  return Named(WithinMemory(
      [&] { return ApplyStored(context.executor, optimizer, hyper, references, grads, distinct); }));
}

Status Table::ApplyStored(Executor& executor, std::string_view optimizer, Span<const float> hyper,
                          Span<const int64_t> references, const float* grads, bool distinct) {
  SOK_RETURN_IF_ERROR(CheckStep(optimizer, hyper, references));
  if (optimizer_ == nullptr) SOK_RETURN_IF_ERROR(AttachOptimizer(executor, optimizer, hyper));
  CurrentGradients current;
  if (directory_.has_erased()) {
    current = DropStale(*this, references, grads);
    references = current.rows;
    if (!current.grads.empty()) grads = current.grads.data();
  }
  return distinct ? TakeStep(executor, hyper, references, StoredRowGradients(grads, options_.dim))
                  : TakeSummedStep(executor, hyper, references, grads);
}

Status Table::ApplyLocked(Executor& executor, std::string_view optimizer, Span<const float> hyper,
                          Span<const int64_t> references, const RowGradients& gradients) {
  if (optimizer_ == nullptr) SOK_RETURN_IF_ERROR(AttachOptimizer(executor, optimizer, hyper));
  if (!directory_.has_erased()) return TakeStep(executor, hyper, references, gradients);
  const auto is_current = [this](int64_t reference) { return IsCurrent(reference); };
  if (std::all_of(references.begin(), references.end(), is_current)) {
    std::vector<int64_t> rows(references.size());
    std::transform(references.begin(), references.end(), rows.begin(), RowOf);
    return TakeStep(executor, hyper, rows, gradients);
  }
  // Rows were freed since the lookup. That is rare, so it may cost an array of all gradients.
  std::vector<float> grads(references.size() * options_.dim);
  for (int64_t i = 0; i < references.size(); ++i) {
    float* const row = grads.data() + i * options_.dim;
    const float* const block = gradients.Block(i, i + 1, row);
    if (block != row) std::copy_n(block, options_.dim, row);
  }
  return ApplyStored(executor, optimizer, hyper, references, grads.data(), /*distinct=*/true);
}

Status Table::TakeStep(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
                       const RowGradients& gradients) {
  // Apply reaches only the rows that are in memory.
  if (tiers() != nullptr && optimizer_->StartsAnew(hyper)) SOK_RETURN_IF_ERROR(SettleOptimizer(executor));
  SOK_RETURN_IF_ERROR(BringUp(executor, rows, RowUse::kWrite));
  SOK_RETURN_IF_ERROR(Named(optimizer_->Apply(executor, hyper, rows, gradients, &store_)));
  const int64_t step = CountStep();
  if (has_last_step()) {
    for (const int64_t row : rows) set_last_step(row, step);
  }
  MarkChanged(rows);
  return OkStatus();
}

Status Table::TakeSummedStep(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
                             const float* grads) {
  std::vector<int64_t> unique;
  std::vector<int32_t> inverse(rows.size());
  SOK_RETURN_IF_ERROR(Named(deduplicator_.Run(executor, rows, &unique, Span<int32_t>(inverse))));
  const int64_t num_unique = static_cast<int64_t>(unique.size());
  if (num_unique == rows.size()) {
    return TakeStep(executor, hyper, rows, StoredRowGradients(grads, options_.dim));
  }
  Segments segments;
  BuildSegments(inverse, num_unique, &segments);
  std::vector<const float*> grad_rows(rows.size());
  for (size_t i = 0; i < grad_rows.size(); ++i) grad_rows[i] = grads + static_cast<int64_t>(i) * options_.dim;
  std::vector<float> sums(num_unique * options_.dim);
  SegmentSum(executor, segments.offsets, segments.positions, grad_rows, {}, options_.dim, sums.data());
  return TakeStep(executor, hyper, unique, StoredRowGradients(sums.data(), options_.dim));
}

int64_t Table::slot_width() const {
  int64_t width = 0;
  if (optimizer_ != nullptr) {
    for (const SlotSpec& slot : optimizer_->Slots(options_.dim, first_hyper_)) width += slot.width;
  }
  return width;
}

Status Table::SettleOptimizer(Executor& executor) {
  if (!has_catch_up()) return OkStatus();
  SOK_RETURN_IF_ERROR(ForEachPieceUpToDate(executor, [](Span<const int64_t> /*rows*/) {}));
  optimizer_->ForgetPastSteps();
  return OkStatus();
}

Status Table::RestoreOptimizer(Executor& executor, std::string_view name, Span<const float> hyper,
                               int64_t steps) {
  if (optimizer_ != nullptr) return HasOptimizerAlready(options_, optimizer_->name());
  SOK_RETURN_IF_ERROR(AttachOptimizer(executor, name, hyper));
  optimizer_->RestoreSteps(steps);
  return OkStatus();
}

}  // namespace sok
