// For tests: the tables of several ranks as objects of one process; how they train, are saved and restored.
#ifndef SOK_CC_CHECKPOINT_SAVED_RANKS_H_
#define SOK_CC_CHECKPOINT_SAVED_RANKS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/base/executor.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/table/table.h"

namespace sok {

using Tables = std::vector<std::unique_ptr<Table>>;

// All that a table is, to compare: rows by key, with their floats as they lie in memory.
struct TableState {
  using Row = std::tuple<std::vector<float>, int64_t, int64_t, int64_t, int64_t>;
  std::map<int64_t, Row> rows;  // floats, frequency, last step, last use, optimizer's last current step
  std::map<int64_t, std::pair<int64_t, int64_t>> waiting;
  std::string bloom;
  std::pair<int64_t, int64_t> clock;
  std::string optimizer;
  int64_t optimizer_steps = -1;

  bool operator==(const TableState& other) const {
    return rows == other.rows && waiting == other.waiting && bloom == other.bloom && clock == other.clock &&
           optimizer == other.optimizer && optimizer_steps == other.optimizer_steps;
  }
};

// Adds the table to a state, which may have those of other ranks already.
inline void AddState(const Table& table, TableState* state) {
  for (int64_t row = 0; row < table.row_limit(); ++row) {
    if (!table.in_use(row)) continue;
    const int64_t floats = table.options().dim + table.slot_width();
    state->rows[table.key(row)] = TableState::Row(
        std::vector<float>(table.weights(row), table.weights(row) + floats),
        table.has_frequency() ? table.frequency(row) : -1, table.has_last_step() ? table.last_step(row) : -1,
        table.has_last_used() ? table.last_used(row) : -1,
        table.optimizer() != nullptr ? table.optimizer()->last_current(row) : -1);
  }
  if (table.waiting() != nullptr) {
    for (int64_t place = 0; place < table.waiting()->limit(); ++place) {
      if (!table.waiting()->in_use(place)) continue;
      state->waiting[table.waiting()->id(place)] = {table.waiting()->count(place),
                                                    table.waiting()->last_step(place)};
    }
  }
  if (table.bloom() != nullptr) {
    state->bloom.append(table.bloom()->bytes().data(), static_cast<size_t>(table.bloom()->bytes().size()));
  }
  state->clock = {table.steps(), table.uses()};
  state->optimizer = table.optimizer_name();
  if (table.optimizer() != nullptr) state->optimizer_steps = table.optimizer()->steps();
}

inline TableState StateOf(const Tables& tables) {
  TableState state;
  for (const auto& table : tables) AddState(*table, &state);
  return state;
}

inline Tables MakeTables(TableOptions options, int ranks) {
  InlineExecutor executor;
  Tables tables;
  options.ranks = ranks;
  for (options.rank = 0; options.rank < ranks; ++options.rank) {
    auto made = Table::Create(executor, options);
    if (!made.ok()) return {};
    tables.push_back(std::move(made.value()));
  }
  return tables;
}

// One step of all ranks on some keys, each of which stands `count` times in the batch.
inline Status TrainOn(const Tables& tables, const std::string& optimizer, const std::vector<float>& hyper,
                      const std::vector<int64_t>& keys, std::mt19937_64* random) {
  InlineExecutor executor;
  std::normal_distribution<float> normal(0.0f, 1.0f);
  const int64_t dim = tables[0]->options().dim;
  std::vector<std::vector<int64_t>> own(tables.size());
  std::vector<std::vector<int64_t>> counts(tables.size());
  std::vector<std::vector<float>> grads(tables.size());
  const KeyOwners owners = tables[0]->key_owners();
  for (const int64_t key : keys) {
    const int64_t count = 1 + static_cast<int64_t>((*random)() % 3);
    std::vector<float> gradient(static_cast<size_t>(dim));
    for (float& value : gradient) value = normal(*random);
    for (size_t rank = 0; rank < tables.size(); ++rank) {
      if (!owners.Holds(static_cast<int>(rank), key)) continue;
      own[rank].push_back(key);
      counts[rank].push_back(count);
      grads[rank].insert(grads[rank].end(), gradient.begin(), gradient.end());
    }
  }
  for (size_t rank = 0; rank < tables.size(); ++rank) {
    std::vector<int64_t> rows(own[rank].size());
    SOK_RETURN_IF_ERROR(
        tables[rank]->FindForTraining(executor, own[rank], counts[rank], Span<int64_t>(rows)));
    std::vector<int64_t> references;
    std::vector<float> own_grads;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] == Table::kAbsent) continue;
      references.push_back(rows[i]);
      const auto grad = grads[rank].begin() + static_cast<int64_t>(i) * dim;
      own_grads.insert(own_grads.end(), grad, grad + dim);
    }
    tables[rank]->BringUpToDate(executor, references);
    tables[rank]->MakeReferences(Span<int64_t>(references));
    SOK_RETURN_IF_ERROR(
        tables[rank]->ApplyGradients(executor, optimizer, hyper, references, own_grads.data(), true));
  }
  return OkStatus();
}

// One step on each key of `keys` with the given probability.
inline Status TrainOnSome(const Tables& tables, const std::string& optimizer, const std::vector<float>& hyper,
                          const std::vector<int64_t>& keys, double share, std::mt19937_64* random) {
  std::bernoulli_distribution chosen(share);
  std::vector<int64_t> some;
  for (const int64_t key : keys) {
    if (chosen(*random)) some.push_back(key);
  }
  return TrainOn(tables, optimizer, hyper, some, random);
}

// All stages on all ranks, and what follows when one fails.
inline StatusOr<std::string> Save(const Tables& tables, const SaveRequest& request) {
  InlineExecutor executor;
  const auto stages = [&]() -> StatusOr<std::string> {
    for (const auto& table : tables) SOK_RETURN_IF_ERROR(BeginTableCheckpoint(*table, request));
    for (const auto& table : tables) SOK_RETURN_IF_ERROR(WriteTableShard(executor, table.get(), request));
    std::string reference;
    for (const auto& table : tables) {
      auto published = PublishTableCheckpoint(table.get(), request);
      if (!published.ok()) return published;
      if (table != tables.front() && published.value() != reference) return Internal("ranks disagree");
      reference = published.value();
    }
    return reference;
  };
  auto reference = stages();
  for (const auto& table : tables) {
    if (!reference.ok()) AbandonTableCheckpoint(*table, request);
    EndTableCheckpoint(table.get(), request, reference.ok());
  }
  return reference;
}

// New tables from a checkpoint, each checked before any is loaded.
inline StatusOr<Tables> Restore(const std::string& prefix, const std::string& reference, TableOptions options,
                                int ranks, const RestoreParts& parts) {
  InlineExecutor executor;
  std::vector<std::unique_ptr<TableRestore>> restores;
  options.ranks = ranks;
  for (options.rank = 0; options.rank < ranks; ++options.rank) {
    auto restore = TableRestore::Open(prefix, reference, options, parts);
    if (!restore.ok()) return restore.status();
    restores.push_back(std::move(restore.value()));
  }
  for (const auto& restore : restores) SOK_RETURN_IF_ERROR(restore->Check(executor));
  Tables tables;
  for (const auto& restore : restores) {
    auto table = Table::Create(executor, restore->options());
    if (!table.ok()) return table.status();
    SOK_RETURN_IF_ERROR(restore->Load(executor, table.value().get()));
    tables.push_back(std::move(table.value()));
  }
  return tables;
}

// The id of the n-th save.
inline std::string SaveId(uint64_t n) {
  std::string id = std::to_string(n);
  return std::string(16 - id.size(), '0') + id;
}

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_SAVED_RANKS_H_
