// The part of Table that erases keys, keeps its clocks and tracks changes.
#include <algorithm>
#include <vector>

#include "cc/base/status.h"
#include "cc/cpu/table/table.h"
#include "cc/table/table_errors.h"

namespace sok {
namespace {

double HalfSquaredNorm(const float* weights, int64_t dim) {
  double sum = 0.0;
  for (int64_t c = 0; c < dim; ++c) sum += static_cast<double>(weights[c]) * weights[c];
  return 0.5 * sum;
}

}  // namespace

Status Table::PrepareErase(int64_t rows) {
  SOK_RETURN_IF_ERROR(Named(directory_.PrepareErase(rows)));
  return Named(changes_.Reserve(store_.rows(), rows));
}

Status Table::EraseRows(Span<const int64_t> rows) {
  SOK_RETURN_IF_ERROR(PrepareErase(rows.size()));
  for (const int64_t row : rows) {
    changes_.MarkErased(row, directory_.id(row));
    directory_.Erase(row);
    store_.Forget(row);
  }
  return OkStatus();
}

Status Table::EraseWith(Span<const int64_t> rows, Span<const int64_t> waiting_ids) {
  if (waiting() != nullptr) SOK_RETURN_IF_ERROR(Named(waiting()->Reserve(0, waiting_ids.size())));
  SOK_RETURN_IF_ERROR(EraseRows(rows));
  if (waiting() != nullptr) waiting()->EraseAll(waiting_ids);
  return OkStatus();
}

Status Table::Erase(const EngineContext& context, Span<const int64_t> keys, int64_t* erased) {
  const MutexLock lock(mutex_);
  return Named(WithinMemory([&] { return EraseLocked(context.executor, keys, erased); }));
}

Status Table::EraseLocked(Executor& executor, Span<const int64_t> keys, int64_t* erased) {
  *erased = 0;
  if (!options_.use_hashtable) return CannotEraseKeys(options_);
  std::vector<int64_t> rows(keys.size());
  SOK_RETURN_IF_ERROR(Find(executor, keys, Span<int64_t>(rows)));
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  if (!rows.empty() && rows.front() == kAbsent) rows.erase(rows.begin());
  SOK_RETURN_IF_ERROR(EraseWith(rows, waiting() != nullptr ? keys : Span<const int64_t>()));
  *erased = static_cast<int64_t>(rows.size());
  return OkStatus();
}

Status Table::EvictForSave(Executor& executor, int64_t* evicted) {
  *evicted = 0;
  std::vector<int64_t> rows;
  std::vector<int64_t> waiting_ids;
  switch (options_.eviction.kind) {
    case Eviction::Kind::kNone:
      return OkStatus();
    case Eviction::Kind::kGlobalStep:
      FindUnused(&rows, &waiting_ids);
      break;
    case Eviction::Kind::kL2Weight:
      SOK_RETURN_IF_ERROR(FindSmall(executor, &rows));
      break;
  }
  SOK_RETURN_IF_ERROR(EraseWith(rows, waiting_ids));
  *evicted = static_cast<int64_t>(rows.size());
  return OkStatus();
}

void Table::FindUnused(std::vector<int64_t>* rows, std::vector<int64_t>* waiting_ids) const {
  const int64_t oldest = steps_ - options_.eviction.steps_to_live;
  ForEachPiece([&](Span<const int64_t> piece) {
    for (const int64_t row : piece) {
      if (last_step(row) < oldest) rows->push_back(row);
    }
  });
  if (waiting() == nullptr) return;
  for (int64_t place = 0; place < waiting()->limit(); ++place) {
    if (!waiting()->in_use(place) || waiting()->last_step(place) >= oldest) continue;
    waiting_ids->push_back(waiting()->id(place));
  }
}

Status Table::FindSmall(Executor& executor, std::vector<int64_t>* rows) {
  std::vector<uint8_t> is_small;
  RecordScratch scratch(options_.dim);
  return ForEachPieceUpToDate(executor, [&](Span<const int64_t> piece) {
    is_small.resize(piece.size());
    scratch.ForRanges(executor, piece.size(), options_.dim, [&](int64_t begin, int64_t end, float* floats) {
      for (int64_t i = begin; i < end; ++i) {
        layout().ReadWeights(record(piece[i]), floats);
        is_small[i] = HalfSquaredNorm(floats, options_.dim) < options_.eviction.l2_weight_threshold;
      }
    });
    for (int64_t i = 0; i < piece.size(); ++i) {
      if (is_small[i] != 0) rows->push_back(piece[i]);
    }
  });
}

void Table::SetClock(int64_t steps, int64_t uses, bool of_graph) {
  steps_ = steps;
  uses_ = uses;
  counts_global_steps_ = of_graph;
  queue_.Invalidate();
}

Status Table::SetGlobalStep(int64_t step) {
  const MutexLock lock(mutex_);
  return Named(WithinMemory([&] {
    if (!has_global_step_ && (!counts_global_steps_ || step < steps_)) MoveSteps(step - steps_);
    counts_global_steps_ = has_global_step_ = true;
    steps_ = std::max(steps_, step);
    return OkStatus();
  }));
}

int64_t Table::CountStep() {
  if (!has_global_step_) ++steps_;
  return steps_;
}

void Table::MoveSteps(int64_t by) {
  if (by == 0) return;
  steps_ += by;
  if (has_last_step()) {
    ForEachPiece([&](Span<const int64_t> rows) {
      for (const int64_t row : rows) set_last_step(row, std::max<int64_t>(last_step(row) + by, 0));
    });
  }
  if (waiting() != nullptr) waiting()->MoveLastSteps(by);
  // Ends the chain, because a delta would not save the new last steps of unchanged rows.
  chain_end_ = {};
}

void Table::set_frequency(int64_t row, int64_t value) {
  (*usage_.frequency)[row] = value;
  queue_.Invalidate();
}

void Table::set_last_used(int64_t row, int64_t value) {
  (*usage_.last_used)[row] = value;
  queue_.Invalidate();
}

Status Table::TrackChanges() {
  // The waiting ids first: the table says whether changes are tracked.
  if (waiting() != nullptr) SOK_RETURN_IF_ERROR(Named(waiting()->TrackChanges()));
  return Named(changes_.Start(store_.rows()));
}

void Table::BeginSave() {
  changes_.BeginSave();
  if (waiting() != nullptr) waiting()->changes().BeginSave();
}

void Table::EndSave(bool ok) {
  changes_.EndSave(ok);
  if (waiting() != nullptr) waiting()->changes().EndSave(ok);
}

}  // namespace sok
