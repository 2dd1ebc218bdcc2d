// For tests: trains, saves and restores the tables of several ranks, which are objects of one process.
#ifndef SOK_CC_CHECKPOINT_TESTING_SAVED_RANKS_H_
#define SOK_CC_CHECKPOINT_TESTING_SAVED_RANKS_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/base/executor.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/engine/contract/engine_case.h"
#include "cc/engine/engine.h"

namespace sok {

using Tables = std::vector<std::shared_ptr<EngineTable>>;

// Hyper-parameters of "adam" and "lazy_adam".
inline const std::vector<float> kAdam = {0.01f, 0.9f, 0.999f, 1e-8f};

inline void MustBeOk(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::abort();
}

// The context for calls of the engine under test.
inline EngineContext ContextOn(Executor& executor) { return {executor, EngineOfTests().memory->stream()}; }

// Calls work(held), whose Status must be OK.
template <typename Work>
void WhileHeld(EngineTable* table, const Work& work) {
  InlineExecutor executor;
  const auto held = table->Hold(ContextOn(executor));
  MustBeOk(held.status());
  MustBeOk(work(held.value().get()));
}

// The whole state of tables, for comparisons: rows by key, with their floats as they are in memory.
struct TableState {
  using Row = std::tuple<std::vector<float>, int64_t, int64_t, int64_t, int64_t>;
  std::map<int64_t, Row> rows;  // floats, frequency, last step, last use, optimizer's last current step
  std::map<int64_t, std::pair<int64_t, int64_t>> waiting;
  std::vector<int64_t> bloom_blocks;
  std::string bloom;
  std::pair<int64_t, int64_t> clock;
  std::string optimizer;
  int64_t optimizer_steps = -1;

  bool operator==(const TableState& other) const {
    return rows == other.rows && waiting == other.waiting && bloom_blocks == other.bloom_blocks &&
           bloom == other.bloom && clock == other.clock && optimizer == other.optimizer &&
           optimizer_steps == other.optimizer_steps;
  }
};

inline Status AddRows(HeldTable* table, TableState* state) {
  const HeldState held = table->state();
  int64_t floats = table->options().dim;
  if (held.optimizer.has_value()) {
    const auto optimizer = MakeOptimizer(held.optimizer->name);
    for (const SlotSpec& slot : optimizer.value()->Slots(floats, held.optimizer->first_hyper))
      floats += slot.width;
  }
  const auto at = [](Span<const int64_t> column, int64_t i) { return column.empty() ? -1 : column[i]; };
  RowsToRead what;
  what.parts = held.parts;
  return table->ReadRows(what, [&](const RowPiece& piece) {
    for (int64_t i = 0; i < piece.keys.size(); ++i) {
      const float* const record = piece.records[i];
      state->rows[piece.keys[i]] =
          TableState::Row(std::vector<float>(record, record + floats), at(piece.frequency, i),
                          at(piece.last_step, i), at(piece.last_used, i), at(piece.last_current, i));
    }
    return OkStatus();
  });
}

inline Status AddAdmission(HeldTable* table, TableState* state) {
  const Admission::Kind kind = table->options().admission.kind;
  if (kind == Admission::Kind::kNone) return OkStatus();
  if (kind == Admission::Kind::kCounter) {
    return table->ReadWaiting(RowSet::kAll, [&](const WaitingPiece& piece) {
      for (int64_t i = 0; i < piece.ids.size(); ++i) {
        state->waiting[piece.ids[i]] = {piece.counts[i], piece.last_steps[i]};
      }
      return OkStatus();
    });
  }
  return table->ReadBloom([&](Span<const int64_t> blocks, Span<const char> bytes) {
    state->bloom_blocks.insert(state->bloom_blocks.end(), blocks.begin(), blocks.end());
    state->bloom.append(bytes.data(), static_cast<size_t>(bytes.size()));
    return OkStatus();
  });
}

// Adds a table to a state, which may already contain other ranks' tables.
inline void AddState(EngineTable* table, TableState* state) {
  WhileHeld(table, [&](HeldTable* held) -> Status {
    SOK_RETURN_IF_ERROR(AddRows(held, state));
    SOK_RETURN_IF_ERROR(AddAdmission(held, state));
    const HeldState now = held->state();
    state->clock = {now.clock.steps, now.clock.uses};
    if (!now.optimizer.has_value()) return OkStatus();
    state->optimizer = now.optimizer->name;
    state->optimizer_steps = now.optimizer->steps;
    return OkStatus();
  });
}

inline TableState StateOf(const Tables& tables) {
  TableState state;
  for (const auto& table : tables) AddState(table.get(), &state);
  return state;
}

inline Tables MakeTables(TableOptions options, int ranks) {
  InlineExecutor executor;
  Tables tables;
  options.ranks = ranks;
  for (options.rank = 0; options.rank < ranks; ++options.rank) {
    auto made = EngineOfTests().engine->MakeTable(ContextOn(executor), options);
    if (!made.ok()) return {};
    tables.push_back(std::move(made.value()));
  }
  return tables;
}

// The keys of a table, in the order of their rows.
inline std::vector<int64_t> KeysOf(EngineTable* table) {
  std::vector<int64_t> keys;
  WhileHeld(table, [&](HeldTable* held) {
    return held->ReadRows(RowsToRead(), [&](const RowPiece& piece) {
      keys.insert(keys.end(), piece.keys.begin(), piece.keys.end());
      return OkStatus();
    });
  });
  return keys;
}

// Applies the steps that the optimizer has postponed to all rows.
inline void BringUpToDate(EngineTable* table) {
  WhileHeld(table, [](HeldTable* held) {
    RowsToRead what;
    what.up_to_date = true;
    return held->ReadRows(what, [](const RowPiece&) { return OkStatus(); });
  });
}

inline Status Erase(EngineTable* table, const std::vector<int64_t>& keys) {
  InlineExecutor executor;
  int64_t erased = 0;
  const EngineArray<int64_t> own_keys(*EngineOfTests().memory, keys);
  return table->Erase(ContextOn(executor), own_keys.view(), &erased);
}

// One step of one rank on `ids`, which may repeat; grads[i, :] belongs to ids[i].
inline Status TrainOneRank(EngineTable* table, const std::string& optimizer, const std::vector<float>& hyper,
                           const std::vector<int64_t>& ids, const std::vector<float>& grads) {
  InlineExecutor executor;
  const EngineContext context = ContextOn(executor);
  Engine& engine = table->engine();
  EngineMemory& memory = *EngineOfTests().memory;
  const int64_t dim = table->options().dim;
  const EngineArray<int64_t> own_ids(memory, ids);
  const EngineArray<float> own_grads(memory, grads);
  const auto read = EngineArray<float>::Unwritten(memory, own_grads.size());
  const LookupSpec spec;
  LookupInput input;
  input.ids = own_ids.data();
  input.num_ids = own_ids.size();
  const OutputRows output{read.data(), dim};
  const GradientRows gradient{own_grads.data(), dim};
  const auto plan = engine.NewPlan();
  const auto scratch = engine.NewScratch();
  SOK_RETURN_IF_ERROR(engine.Lookup(context, {{&table, 1}, {&spec, 1}, {&input, 1}, true}, plan.get(),
                                    {&output, 1}, scratch.get()));
  const int64_t rows = plan->trained_rows(0);
  const auto references = EngineArray<int64_t>::Unwritten(memory, rows);
  const auto sums = EngineArray<float>::Unwritten(memory, rows * dim);
  SOK_RETURN_IF_ERROR(plan->WriteReferences(context, 0, references.data()));
  float* const sums_of_table = sums.data();
  SOK_RETURN_IF_ERROR(engine.Backward(context, *plan, {&gradient, 1}, {&sums_of_table, 1}, scratch.get()));
  return table->ApplyGradients(context, optimizer, hyper, references.view(), sums.data(), /*distinct=*/true);
}

// One step of all ranks on `keys`, each of which occurs one to three times in the batch.
inline Status TrainOn(const Tables& tables, const std::string& optimizer, const std::vector<float>& hyper,
                      const std::vector<int64_t>& keys, std::mt19937_64* random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  const int64_t dim = tables[0]->options().dim;
  std::vector<std::vector<int64_t>> ids(tables.size());
  std::vector<std::vector<float>> grads(tables.size());
  const TableOptions& options = tables[0]->options();
  const KeyOwners owners = options.placement.owners(options.ranks);
  for (const int64_t key : keys) {
    const uint64_t count = 1 + (*random)() % 3;
    std::vector<float> gradients(count * static_cast<size_t>(dim));
    for (float& value : gradients) value = normal(*random);
    for (size_t rank = 0; rank < tables.size(); ++rank) {
      if (!owners.Holds(static_cast<int>(rank), key)) continue;
      ids[rank].insert(ids[rank].end(), count, key);
      grads[rank].insert(grads[rank].end(), gradients.begin(), gradients.end());
    }
  }
  for (size_t rank = 0; rank < tables.size(); ++rank) {
    SOK_RETURN_IF_ERROR(TrainOneRank(tables[rank].get(), optimizer, hyper, ids[rank], grads[rank]));
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

// The stages of a save of one table, under its own name or another one.
inline Status Begin(EngineTable* table, const SaveRequest& request, const std::string& name = "") {
  InlineExecutor executor;
  const TableToSave one{table, name};
  return BeginCheckpoint(ContextOn(executor), {&one, 1}, request);
}
inline Status Write(EngineTable* table, const SaveRequest& request, const std::string& name = "") {
  InlineExecutor executor;
  const TableToSave one{table, name};
  return WriteCheckpointPart(ContextOn(executor), {&one, 1}, request);
}
inline Status End(EngineTable* table, const SaveRequest& request, bool ok) {
  InlineExecutor executor;
  return EndTableCheckpoint(ContextOn(executor), table, request, ok);
}
inline StatusOr<std::shared_ptr<EngineTable>> Load(TableRestore* restore) {
  InlineExecutor executor;
  return restore->Load(ContextOn(executor), EngineOfTests().engine);
}

inline Status Compact(const std::string& prefix, const SaveRequest& request) {
  InlineExecutor executor;
  return CompactCheckpoint(ContextOn(executor), EngineOfTests().engine, prefix, request);
}

// All stages of a save of one table on all ranks; after a failure, its clean-up. Returns the table's name in
// the checkpoint.
inline StatusOr<std::string> Save(const Tables& tables, const SaveRequest& request,
                                  const std::string& name = "") {
  const auto stages = [&]() -> Status {
    for (const auto& table : tables) SOK_RETURN_IF_ERROR(Begin(table.get(), request, name));
    for (const auto& table : tables) SOK_RETURN_IF_ERROR(Write(table.get(), request, name));
    return CommitCheckpoint(request, static_cast<int>(tables.size()), /*with_others=*/false);
  };
  const Status status = stages();
  if (!status.ok()) AbandonCheckpoint(request);
  for (const auto& table : tables) SOK_RETURN_IF_ERROR(End(table.get(), request, status.ok()));
  if (!status.ok()) return status;
  return name.empty() ? tables[0]->options().name : name;
}

// New tables from a checkpoint.
inline StatusOr<Tables> Restore(Files& files, const std::string& prefix, const std::string& name,
                                TableOptions options, int ranks, const RestoreParts& parts = {}) {
  Tables tables;
  OpenedCheckpoints opened(files);
  options.ranks = ranks;
  for (options.rank = 0; options.rank < ranks; ++options.rank) {
    SOK_ASSIGN_OR_RETURN(const auto restore, TableRestore::Open(opened, prefix, name, options, parts));
    SOK_ASSIGN_OR_RETURN(auto loaded, Load(restore.get()));
    tables.push_back(std::move(loaded));
  }
  return tables;
}

// Brings tables, of all ranks, from the contents of the save `since` to those of a checkpoint.
inline Status Follow(Files& files, const std::string& prefix, const std::string& name,
                     const std::string& since, const Tables& tables) {
  InlineExecutor executor;
  OpenedCheckpoints opened(files);
  RestoreParts parts;
  parts.optimizer = false;
  for (const auto& table : tables) {
    SOK_ASSIGN_OR_RETURN(auto changes, TableRestore::Open(opened, prefix, name, table->options(), parts));
    SOK_RETURN_IF_ERROR(changes->StartAfter(since));
    SOK_RETURN_IF_ERROR(changes->Check());
    SOK_ASSIGN_OR_RETURN(const auto held, table->Hold(ContextOn(executor)));
    SOK_RETURN_IF_ERROR(changes->Apply(executor, held.get()));
  }
  return OkStatus();
}

// The id of the n-th save.
inline std::string SaveId(uint64_t n) {
  std::string id = std::to_string(n);
  return std::string(16 - id.size(), '0') + id;
}

// The n-th save to /ckpt.
inline SaveRequest NthSave(uint64_t n, bool delta, Files* files) {
  SaveRequest request;
  request.prefix = "/ckpt/model.ckpt-" + std::to_string(n);
  request.id = SaveId(n);
  request.delta = delta;
  request.files = files;
  return request;
}

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TESTING_SAVED_RANKS_H_
