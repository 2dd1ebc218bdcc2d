// Checkpoints of both engines: the same steps write the same files, each reads what the other wrote, and the
// memory for it does not grow with the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/saved_ranks.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/limited_allocator.h"
#include "cuda/engine/gpu_table.h"
#include "cuda/engine/testing/both_engines.h"
#include "cuda/engine/testing/twin_groups.h"

namespace sok {
namespace {

TableOptions Options(const std::string& name, int64_t dim = 3) {
  TableOptions options;
  options.name = name;
  options.dim = dim;
  options.initializer.seed = 77;
  return options;
}

std::vector<int64_t> SomeKeys() {
  std::vector<int64_t> keys = HostileIds();
  const std::vector<int64_t> more = DistinctIds(60, 5);
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

// A kind of table; their files differ in content.
struct Kind {
  TableOptions options;
  std::string optimizer;
  int ranks;
};

std::vector<Kind> Kinds() {
  TableOptions counted = Options("counted", 5);
  counted.admission.kind = Admission::Kind::kCounter;
  counted.admission.filter_freq = 3;
  counted.eviction.kind = Eviction::Kind::kGlobalStep;
  counted.eviction.steps_to_live = 3;
  counted.admission.before_lookup = true;
  counted.capacity = 40;
  counted.on_full = OnFull::kEvictLfu;
  TableOptions bloomed = Options("bloomed", 1);
  bloomed.admission.kind = Admission::Kind::kBloom;
  bloomed.admission.filter_freq = 3;
  bloomed.admission.max_element_size = 100;
  bloomed.admission.counter_bits = 16;
  TableOptions small_norms = Options("small_norms", 4);
  small_norms.eviction.kind = Eviction::Kind::kL2Weight;
  small_norms.eviction.l2_weight_threshold = 1e-3f;
  small_norms.initializer.rows = 9;
  TableOptions fixed = Options("fixed", 8);
  fixed.use_hashtable = false;
  fixed.capacity = 30;
  TableOptions replicated = Options("replicated");
  replicated.placement = Placement::AllRanks();
  TableOptions one_rank = Options("one_rank");
  one_rank.placement = Placement::OneRank(1);
  return {{Options("plain", 65), "adam", 1}, {Options("by_key"), "lazy_adam", 3},
          {counted, "adagrad", 2},           {bloomed, "sgd", 1},
          {small_norms, "adam", 1},          {fixed, "ftrl", 2},
          {replicated, "rmsprop", 2},        {one_rank, "adam", 2}};
}

// Tables that were trained and saved, with what they wrote.
struct Run {
  Tables tables;
  MemoryFiles files;
  std::string name;  // of the table in the last save, which is number 3
  std::mt19937_64 random{1};
};

void TrainSome(const Kind& kind, double share, Run* run) {
  std::vector<int64_t> keys = SomeKeys();
  if (!kind.options.use_hashtable) {
    keys.clear();
    for (int64_t key = 0; key < kind.options.capacity * kind.ranks; ++key) keys.push_back(key);
  }
  MustBeOk(
      TrainOnSome(run->tables, kind.optimizer, SampleHyperOf(kind.optimizer), keys, share, &run->random));
}

// A chain of three saves: steps, erased keys and steps between them.
std::unique_ptr<Run> RunOn(const EngineCase& engine, const Kind& kind) {
  const UseEngine use(engine);
  auto run = std::make_unique<Run>();
  run->tables = MakeTables(kind.options, kind.ranks);
  for (uint64_t save = 1; save <= 3; ++save) {
    for (int step = 0; step < 2; ++step) TrainSome(kind, save == 1 ? 0.6 : 0.3, run.get());
    if (save == 2 && kind.options.use_hashtable) {
      const std::vector<int64_t> keys = SomeKeys();
      for (const auto& table : run->tables)
        MustBeOk(Erase(table.get(), {keys.begin() + 5, keys.begin() + 25}));
    }
    const auto saved = Save(run->tables, NthSave(save, /*delta=*/true, &run->files));
    MustBeOk(saved.status());
    run->name = saved.value();
  }
  return run;
}

std::map<std::string, std::string> FilesOf(Run& run) {
  std::map<std::string, std::string> files;
  for (const auto& [path, bytes] : run.files.AllFiles()) files[path] = *bytes;
  return files;
}

void ExpectSameFiles(Run& one, Run& other) {
  const auto expected = FilesOf(other);
  const auto files = FilesOf(one);
  // Of each save an index, and a file of each rank.
  ASSERT_EQ(files.size(), 3 * (1 + one.tables.size()));
  ASSERT_EQ(files.size(), expected.size());
  for (const auto& [path, bytes] : files) {
    ASSERT_EQ(expected.count(path), 1u) << path;
    EXPECT_TRUE(bytes == expected.at(path)) << path;
  }
}

TEST(GpuCheckpointTest, BothEnginesWriteTheSameFiles) {
  for (const Kind& kind : Kinds()) {
    SCOPED_TRACE(kind.options.name);
    const auto on_cpu = RunOn(CpuEngineOfTests(), kind);
    const auto on_gpu = RunOn(GpuEngineOfTests(), kind);
    ExpectSameFiles(*on_gpu, *on_cpu);
  }
}

// Restores what one engine wrote with another, on the same number of ranks, and continues training with both.
void ExpectMoves(const EngineCase& from, const EngineCase& to, const Kind& kind) {
  const auto run = RunOn(from, kind);
  const auto state_of = [](const EngineCase& engine, const Tables& tables) {
    const UseEngine use(engine);
    return StateOf(tables);
  };
  Run moved;
  {
    const UseEngine use(to);
    auto restored = Restore(run->files, "/ckpt/model.ckpt-3", run->name, kind.options, kind.ranks);
    ASSERT_TRUE(restored.ok()) << restored.status().message();
    moved.tables = std::move(restored.value());
  }
  EXPECT_TRUE(state_of(to, moved.tables) == state_of(from, run->tables));
  moved.random = run->random;
  for (int step = 0; step < 2; ++step) {
    {
      const UseEngine use(to);
      TrainSome(kind, 0.4, &moved);
    }
    const UseEngine use(from);
    TrainSome(kind, 0.4, run.get());
  }
  EXPECT_TRUE(state_of(to, moved.tables) == state_of(from, run->tables)) << "after more steps";
}

TEST(GpuCheckpointTest, EachEngineReadsWhatTheOtherWrote) {
  for (const Kind& kind : Kinds()) {
    SCOPED_TRACE(kind.options.name);
    ExpectMoves(CpuEngineOfTests(), GpuEngineOfTests(), kind);
    ExpectMoves(GpuEngineOfTests(), CpuEngineOfTests(), kind);
  }
}

TEST(GpuCheckpointTest, ATableInTheHostsMemoryIsSavedAsAnyOther) {
  Kind kind = {Options("table", 5), "adam", 2};
  const auto on_device = RunOn(GpuEngineOfTests(), kind);
  kind.options.memory = RowMemory::kHost;
  const auto on_host = RunOn(GpuEngineOfTests(), kind);
  ExpectSameFiles(*on_host, *on_device);
  for (const RowMemory memory : {RowMemory::kDevice, RowMemory::kHost}) {
    kind.options.memory = memory;
    const auto restored = Restore(on_host->files, "/ckpt/model.ckpt-3", on_host->name, kind.options, 2);
    ASSERT_TRUE(restored.ok()) << restored.status().message();
    EXPECT_EQ(restored.value()[0]->options().memory, memory);
    EXPECT_TRUE(StateOf(restored.value()) == StateOf(on_device->tables));
  }
}

// A context's memory, of which not all may be in use.
class LimitedMemory final : public StreamMemory {
 public:
  StatusOr<void*> Allocate(void* stream, int64_t bytes) override {
    StatusOr<void*> memory = allocator.Allocate(static_cast<cudaStream_t>(stream), bytes);
    peak = std::max(peak, allocator.in_use);
    return memory;
  }
  void Free(void* stream, void* memory) override {
    allocator.Free(static_cast<cudaStream_t>(stream), memory);
  }

  LimitedAllocator allocator;
  int64_t peak = 0;
};

Status SaveWith(const EngineContext& context, EngineTable* table, const SaveRequest& request) {
  const TableToSave one{table};
  SOK_RETURN_IF_ERROR(BeginCheckpoint(context, {&one, 1}, request));
  Status written = WriteCheckpointPart(context, {&one, 1}, request);
  if (written.ok()) written = CommitCheckpoint(request, 1, false);
  if (!written.ok()) AbandonCheckpoint(request);
  SOK_RETURN_IF_ERROR(EndTableCheckpoint(context, table, request, written.ok()));
  return written;
}

TEST(GpuCheckpointTest, MemoryDoesNotGrowWithTheTable) {
  // Rows of 96 KiB with slots: a piece of 16 MiB has few of them, and a row few CUDA threads.
  const TableOptions options = Options("wide", 8192);
  const Tables tables = MakeTables(options, 1);
  std::mt19937_64 random(1);
  MustBeOk(TrainOn(tables, "lazy_adam", kAdam, DistinctIds(400, 3), &random));
  ASSERT_GT(tables[0]->Describe().bytes, 36 << 20);

  InlineExecutor executor;
  LimitedMemory memory;
  const EngineContext context{executor, EngineOfTests().memory->stream(), &memory};
  MemoryFiles files;
  memory.allocator.limit = 1 << 20;
  const Status refused = SaveWith(context, tables[0].get(), NthSave(1, false, &files));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("'wide'"), std::string::npos) << refused.message();

  memory.allocator.limit = 17 << 20;
  const Status saved = SaveWith(context, tables[0].get(), NthSave(2, false, &files));
  ASSERT_TRUE(saved.ok()) << saved.message();
  EXPECT_GT(memory.peak, 15 << 20);
  OpenedCheckpoints opened(files);
  auto restore = TableRestore::Open(opened, "/ckpt/model.ckpt-2", options.name, options, RestoreParts());
  ASSERT_TRUE(restore.ok()) << restore.status().message();
  const auto loaded = restore.value()->Load(context, EngineOfTests().engine);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(StateOf({loaded.value()}) == StateOf(tables));
}

// What is read of a table with windows of a few rows.
struct WindowedRead {
  std::vector<int64_t> numbers;
  std::vector<int64_t> changed;
  std::vector<int64_t> waiting;
  std::vector<int64_t> changed_waiting;
};

WindowedRead ReadIn(EngineTable* table, int64_t window_rows) {
  WindowedRead read;
  InlineExecutor executor;
  AsyncAllocator own;
  const auto held = HoldTable(ContextOn(executor), &own, DeviceTableOf(table), window_rows);
  MustBeOk(held.status());
  const auto rows_of = [&](RowSet set, std::vector<int64_t>* numbers) {
    RowsToRead what;
    what.set = set;
    MustBeOk(held.value()->ReadRows(what, [&](const RowPiece& piece) {
      numbers->insert(numbers->end(), piece.numbers.begin(), piece.numbers.end());
      return OkStatus();
    }));
    EXPECT_EQ(held.value()->CountRows(set).value(), static_cast<int64_t>(numbers->size()));
  };
  const auto waiting_of = [&](RowSet set, std::vector<int64_t>* ids) {
    MustBeOk(held.value()->ReadWaiting(set, [&](const WaitingPiece& piece) {
      ids->insert(ids->end(), piece.ids.begin(), piece.ids.end());
      return OkStatus();
    }));
    EXPECT_EQ(held.value()->CountWaiting(set).value(), static_cast<int64_t>(ids->size()));
  };
  rows_of(RowSet::kAll, &read.numbers);
  rows_of(RowSet::kChanged, &read.changed);
  waiting_of(RowSet::kAll, &read.waiting);
  waiting_of(RowSet::kChanged, &read.changed_waiting);
  return read;
}

TEST(GpuCheckpointTest, TablesAreReadAndEvictedWindowByWindow) {
  TableOptions options = Options("table");
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 3;
  options.eviction.kind = Eviction::Kind::kGlobalStep;
  options.eviction.steps_to_live = 2;
  const Tables tables = MakeTables(options, 1);
  const Tables twins = MakeTables(options, 1);
  const std::vector<int64_t> keys = DistinctIds(400, 8);
  for (const Tables& each : {tables, twins}) {
    std::mt19937_64 random(2);
    WhileHeld(each[0].get(), [](HeldTable* held) { return held->TrackChanges(); });
    for (int step = 0; step < 3; ++step) MustBeOk(TrainOnSome(each, "sgd", {0.1f}, keys, 0.5, &random));
    WhileHeld(each[0].get(), [](HeldTable* held) {
      SOK_RETURN_IF_ERROR(held->BeginSave());
      held->EndSave(true, {});
      return OkStatus();
    });
    for (int step = 0; step < 2; ++step) MustBeOk(TrainOnSome(each, "sgd", {0.1f}, keys, 0.3, &random));
  }
  const WindowedRead whole = ReadIn(tables[0].get(), kRowsOfWindow);
  const WindowedRead parts = ReadIn(tables[0].get(), 32);
  ASSERT_GT(whole.numbers.size(), 100u);
  ASSERT_GT(whole.numbers.size(), whole.changed.size());
  ASSERT_GT(whole.waiting.size(), whole.changed_waiting.size());
  EXPECT_EQ(parts.numbers, whole.numbers);
  EXPECT_EQ(parts.changed, whole.changed);
  EXPECT_EQ(parts.waiting, whole.waiting);
  EXPECT_EQ(parts.changed_waiting, whole.changed_waiting);

  const auto evict = [](EngineTable* table, int64_t window_rows) {
    InlineExecutor executor;
    AsyncAllocator own;
    MustBeOk(HoldTable(ContextOn(executor), &own, DeviceTableOf(table), window_rows).value()->EvictForSave());
  };
  evict(tables[0].get(), 32);
  evict(twins[0].get(), kRowsOfWindow);
  ASSERT_LT(tables[0]->Describe().rows, static_cast<int64_t>(whole.numbers.size()));
  // New keys take the freed rows in the same order.
  for (const Tables& each : {tables, twins}) {
    std::mt19937_64 random(3);
    for (int step = 0; step < 3; ++step) {
      MustBeOk(TrainOn(each, "sgd", {0.1f}, DistinctIds(30, 9), &random));
    }
  }
  EXPECT_EQ(ReadIn(tables[0].get(), 32).numbers, ReadIn(twins[0].get(), kRowsOfWindow).numbers);
  EXPECT_TRUE(StateOf(tables) == StateOf(twins));
  EXPECT_EQ(KeysOf(tables[0].get()), KeysOf(twins[0].get()));
}

}  // namespace
}  // namespace sok
