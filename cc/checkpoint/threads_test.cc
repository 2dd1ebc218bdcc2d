// Saving and loading with several threads gives the same files and tables as with one.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/saved_ranks.h"

namespace sok {
namespace {

Tables MakeTrained(const std::string& optimizer, const std::vector<float>& hyper) {
  TableOptions options;
  options.name = "items";
  options.dim = 16;  // an array of them has several blocks
  options.capacity = 50000;
  options.on_full = OnFull::kEvictLfu;
  options.eviction.kind = Eviction::Kind::kGlobalStep;
  options.eviction.steps_to_live = 1000;
  Tables tables = MakeTables(options, 1);
  // Of two pieces.
  std::vector<int64_t> keys(EngineOfTests().is_slow ? 1500 : 45000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i) * 7 - 5000;
  std::mt19937_64 random(3);
  for (int step = 0; step < 3; ++step) {
    EXPECT_TRUE(TrainOnSome(tables, optimizer, hyper, keys, 0.8, &random).ok());
  }
  return tables;
}

// All files of a save, by path.
std::map<std::string, std::string> SavedFiles(Executor& executor, EngineTable* table, MemoryFiles* files) {
  SaveRequest request;
  request.files = files;
  request.prefix = "/model.ckpt-1";
  request.id = SaveId(1);
  const EngineContext context = ContextOn(executor);
  const TableToSave one{table};
  EXPECT_TRUE(BeginCheckpoint(context, {&one, 1}, request).ok());
  EXPECT_TRUE(WriteCheckpointPart(context, {&one, 1}, request).ok());
  EXPECT_TRUE(CommitCheckpoint(request, 1, false).ok());
  EXPECT_TRUE(EndTableCheckpoint(context, table, request, true).ok());
  std::map<std::string, std::string> saved;
  for (const auto& [path, bytes] : files->AllFiles()) saved[path] = *bytes;
  return saved;
}

class CheckpointThreadsTest : public ::testing::TestWithParam<int> {};

TEST_P(CheckpointThreadsTest, FilesAndRowsEqualThoseOfOneThread) {
  ThreadPool threads(GetParam(), 0);
  InlineExecutor one;
  for (const auto& [optimizer, hyper] : std::map<std::string, std::vector<float>>{
           {"sgd", {0.1f}}, {"lazy_adam", {0.01f, 0.9f, 0.999f, 1e-8f}}}) {
    const Tables tables = MakeTrained(optimizer, hyper);
    MemoryFiles files_of_one;
    MemoryFiles files;
    const auto expected = SavedFiles(one, tables[0].get(), &files_of_one);
    EXPECT_EQ(SavedFiles(threads, tables[0].get(), &files), expected);
    OpenedCheckpoints opened(files);
    const TableOptions& options = tables[0]->options();
    auto restore = TableRestore::Open(opened, "/model.ckpt-1", options.name, options, RestoreParts());
    ASSERT_TRUE(restore.ok()) << restore.status().message();
    const auto loaded = restore.value()->Load(ContextOn(threads), EngineOfTests().engine);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_TRUE(StateOf({loaded.value()}) == StateOf(tables));
    EXPECT_EQ(KeysOf(loaded.value().get()), KeysOf(tables[0].get())) << "in the order of the rows";
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, CheckpointThreadsTest, ::testing::Values(2, 4, 8));

}  // namespace
}  // namespace sok
