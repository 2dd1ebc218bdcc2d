// A table with a disk that is full: an error that names the variable, and nothing has changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/cpu/table/table.h"
#include "cc/disk/row_file.h"
#include "cc/disk/testing/files_for_tests.h"

namespace sok {
namespace {

// Rows so long that few fill a segment of the file.
constexpr int64_t kDim = 1 << 16;
constexpr int64_t kRowsInMemory = 4;

std::unique_ptr<Table> MakeTable(OnFull on_full, int64_t capacity) {
  InlineExecutor executor;
  TableOptions options;
  options.name = "items";
  options.dim = kDim;
  options.capacity = capacity;
  options.on_full = on_full;
  options.tiers.memory_bytes = kRowsInMemory * kDim * 4;
  options.tiers.folder = testing::TempDir();
  auto table = Table::Create(executor, options);
  EXPECT_TRUE(table.ok()) << table.status().message();
  return std::move(table.value());
}

Status LookUp(Executor& executor, Table* table, const std::vector<int64_t>& keys) {
  table->BeginCall();
  std::vector<int64_t> rows(keys.size());
  std::vector<int64_t> read_default;
  const std::vector<int64_t> counts(keys.size(), 1);
  return table->FindForTraining(executor, keys, counts, Span<int64_t>(rows), &read_default);
}

// The keys, in the order of their rows, which must have their initial values.
std::vector<int64_t> Keys(Executor& executor, Table* table) {
  std::vector<float> initial(kDim);
  for (const int64_t row : table->Rows()) {
    table->BeginCall();
    const Status status = table->BringUp(executor, Span<const int64_t>(&row, 1), RowUse::kScan);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return {};
    table->InitialRow(table->key(row), Span<float>(initial));
    EXPECT_TRUE(std::equal(initial.begin(), initial.end(), table->weights(row))) << row;
  }
  return table->Keys();
}

// Looks up new keys until the disk is full, together with an old one or alone: then the first rows that
// memory has no room for are new ones.
void FillDisk(OnFull on_full, bool with_old) {
  ThreadPool executor(2);
  // With eviction the table is full before the disk is, and rows that are evicted leave gaps in the file.
  const auto table = MakeTable(on_full, on_full == OnFull::kError ? 0 : 100);
  const auto keys_from = [&](int64_t key) {
    return std::vector<int64_t>{key, key + 1, with_old ? key / 2 : key + 2};
  };
  int64_t key = 0;
  std::vector<int64_t> before;
  Status status;
  {
    const FileLimit limit(7 * RowFile::kSegmentBytes);
    while (status.ok() && key < 1000) {
      before = table->Keys();
      status = LookUp(executor, table.get(), keys_from(key));
      key += status.ok() ? (with_old ? 2 : 3) : 0;
    }
    EXPECT_GT(key, 103);  // so rows were evicted
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
    EXPECT_NE(status.message().find("'items'"), std::string::npos) << status.message();
    EXPECT_EQ(table->Keys(), before);
    const std::vector<float> values(3 * kDim, 7.0f);
    const std::vector<int64_t> keys = {key, 0, 1};
    EXPECT_EQ(table->Assign({executor}, keys, values.data()).code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(table->Keys(), before);
  }
  EXPECT_EQ(Keys(executor, table.get()), before);
  EXPECT_TRUE(LookUp(executor, table.get(), keys_from(key)).ok());
  EXPECT_NE(Keys(executor, table.get()), before);
}

TEST(TableOnDiskTest, AFullDiskIsAnErrorAndChangesNothing) {
  for (const OnFull on_full : {OnFull::kError, OnFull::kEvictLru}) {
    for (const bool with_old : {true, false}) FillDisk(on_full, with_old);
  }
}

}  // namespace
}  // namespace sok
