// The part of Table that finds and inserts rows: counting, admission, insertion.
#include <algorithm>
#include <vector>

#include "cc/cpu/table/table.h"
#include "cc/table/table_errors.h"

namespace sok {
namespace {

// Some of the distinct ids of a lookup.
struct SomeIds {
  std::vector<int64_t> positions;  // in the lookup
  std::vector<int64_t> ids;
  std::vector<int64_t> counts;  // occurrences; not read if the table does not count

  void Add(int64_t position, int64_t id, int64_t count) {
    positions.push_back(position);
    ids.push_back(id);
    counts.push_back(count);
  }
};

SomeIds WithoutRows(Span<const int64_t> ids, Span<const int64_t> counts, Span<const int64_t> rows) {
  SomeIds result;
  const int64_t absent = std::count(rows.begin(), rows.end(), Table::kAbsent);
  if (absent == 0) return result;
  for (std::vector<int64_t>* column : {&result.positions, &result.ids, &result.counts})
    column->reserve(absent);
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (rows[i] == Table::kAbsent) result.Add(i, ids[i], counts.empty() ? 0 : counts[i]);
  }
  return result;
}

}  // namespace

Status Table::FindOrMake(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows,
                         InitialValues values) {
  SOK_RETURN_IF_ERROR(Find(executor, ids, rows));
  SOK_RETURN_IF_ERROR(BringUp(executor, rows, RowUse::kWrite));
  const SomeIds absent = WithoutRows(ids, {}, rows);
  const int64_t made = static_cast<int64_t>(absent.ids.size());
  SOK_RETURN_IF_ERROR(CheckCapacity(made));
  if (waiting() != nullptr) SOK_RETURN_IF_ERROR(Named(waiting()->Reserve(0, made)));
  SOK_RETURN_IF_ERROR(InsertAt(executor, absent.ids, absent.positions, rows, values));
  if (waiting() != nullptr) waiting()->EraseAll(absent.ids);
  return OkStatus();
}

Status Table::FindForTraining(Executor& executor, Span<const int64_t> ids, Span<const int64_t> counts,
                              Span<int64_t> rows, std::vector<int64_t>* read_default) {
  read_default->clear();
  SOK_RETURN_IF_ERROR(Find(executor, ids, rows));
  SOK_RETURN_IF_ERROR(BringUp(executor, rows, RowUse::kRead));
  const SomeIds absent = WithoutRows(ids, counts, rows);
  if (has_admission()) {
    SOK_RETURN_IF_ERROR(
        InsertAdmitted(executor, absent.ids, absent.counts, absent.positions, rows, read_default));
  } else {
    SOK_RETURN_IF_ERROR(MakeRoom(executor, rows, static_cast<int64_t>(absent.ids.size())));
    SOK_RETURN_IF_ERROR(InsertAt(executor, absent.ids, absent.positions, rows));
  }
  ++uses_;
  CountUses(rows, counts);
  if (!represents_rows()) return OkStatus();
  const int64_t filtered = has_admission() ? std::count(rows.begin(), rows.end(), kAbsent) : 0;
  LookupCounts::Add(lookup_counts_->distinct_ids, ids.size());
  LookupCounts::Add(lookup_counts_->admitted_ids, static_cast<int64_t>(absent.ids.size()) - filtered);
  LookupCounts::Add(lookup_counts_->filtered_ids, filtered);
  return OkStatus();
}

void Table::AskAhead(Executor& executor, Span<const int64_t> ids) {
  if (store_.tiers() == nullptr || !store_.tiers()->file().asks_ahead()) return;
  std::vector<int64_t> rows(ids.size());
  // A key that has no row is an error of the lookup.
  if (Find(executor, ids, Span<int64_t>(rows)).ok()) store_.AskAhead(executor, rows);
}

Status Table::InsertAdmitted(Executor& executor, Span<const int64_t> ids, Span<const int64_t> counts,
                             Span<const int64_t> positions, Span<int64_t> rows,
                             std::vector<int64_t>* read_default) {
  std::vector<int64_t> totals(ids.size());
  admission_.Total(ids, counts, Span<int64_t>(totals));
  SomeIds admitted;
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (admission_.Admits(totals[i])) admitted.Add(positions[i], ids[i], totals[i] - counts[i]);
  }
  SOK_RETURN_IF_ERROR(Named(admission_.Reserve(ids)));
  SOK_RETURN_IF_ERROR(MakeRoom(executor, rows, static_cast<int64_t>(admitted.ids.size())));
  SOK_RETURN_IF_ERROR(InsertAt(executor, admitted.ids, admitted.positions, rows));
  admission_.Commit(ids, counts, totals, steps_);
  // New rows start with the occurrences that were counted before this lookup.
  for (size_t i = 0; i < admitted.ids.size(); ++i) {
    (*usage_.frequency)[rows[admitted.positions[i]]] = admitted.counts[i];
    if (admission_.ReadsDefault(admitted.counts[i])) read_default->push_back(admitted.positions[i]);
  }
  return OkStatus();
}

Status Table::InsertAt(Executor& executor, Span<const int64_t> ids, Span<const int64_t> positions,
                       Span<int64_t> rows, InitialValues values) {
  if (ids.empty()) return OkStatus();
  std::vector<int64_t> new_rows(ids.size());
  SOK_RETURN_IF_ERROR(Insert(executor, ids, Span<int64_t>(new_rows), values));
  for (int64_t i = 0; i < ids.size(); ++i) rows[positions[i]] = new_rows[i];
  return OkStatus();
}

Status Table::MakeRoom(Executor& executor, Span<const int64_t> rows, int64_t new_keys) {
  if (options_.on_full == OnFull::kError) return CheckCapacity(new_keys);
  const int64_t surplus = size() + new_keys - options_.capacity;
  if (surplus <= 0) return OkStatus();
  const int64_t needed = new_keys + rows.size() - std::count(rows.begin(), rows.end(), kAbsent);
  if (needed > options_.capacity) {
    return LookupExceedsCapacity(options_, needed);
  }
  // Allocates all memory and writes to disk first, so that nothing can fail once rows are being erased.
  SOK_RETURN_IF_ERROR(Reserve(new_keys));
  SOK_RETURN_IF_ERROR(PrepareErase(surplus));
  SOK_RETURN_IF_ERROR(Named(queue_.PrepareTake(directory_, usage_, surplus, needed - new_keys, new_keys)));
  SOK_RETURN_IF_ERROR(Named(store_.MakeRoom(executor, new_keys)));
  return EraseRows(queue_.Take(directory_, usage_, surplus, rows));
}

void Table::CountUses(Span<const int64_t> rows, Span<const int64_t> counts) {
  if (!has_frequency() && !has_last_used()) return;
  for (int64_t i = 0; i < rows.size(); ++i) {
    const int64_t row = rows[i];
    if (row == kAbsent) continue;
    if (has_frequency()) (*usage_.frequency)[row] += counts[i];
    if (has_last_used()) (*usage_.last_used)[row] = uses_;
    changes_.MarkChanged(row);
  }
}

}  // namespace sok
