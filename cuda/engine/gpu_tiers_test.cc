// What lookups in tables with tiers move between device and host memory. gpu_tiers_contract_test shows that
// it changes no results.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cc/disk/row_file.h"
#include "cc/disk/testing/files_for_tests.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/training_reference.h"
#include "cc/engine/engine_table.h"
#include "cuda/engine/testing/gpu_case.h"

namespace sok {
namespace {

// Keys of each of two tables, whose records have 16 and 32 bytes: 8 and 4 of them are in device memory.
using Keys = std::vector<std::vector<int64_t>>;

std::vector<int64_t> Range(int64_t first, int64_t end) {
  std::vector<int64_t> keys(end - first);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

struct Moves {
  std::vector<int64_t> hits, misses, rows;
  bool operator==(const Moves& other) const {
    return hits == other.hits && misses == other.misses && rows == other.rows;
  }
};
std::ostream& operator<<(std::ostream& out, const Moves& moves) {
  return out << "hits " << testing::PrintToString(moves.hits) << ", misses "
             << testing::PrintToString(moves.misses) << ", rows moved " << testing::PrintToString(moves.rows);
}

class GpuTiersTest : public testing::Test {
 protected:
  void SetUp() override {
    engine_.tiers = {128, "", /*by_frequency=*/false};
    group_ = std::make_unique<ContractGroup>(
        engine_, executor_,
        std::vector<TableOptions>{ContractOptions("few", 4), ContractOptions("fewer", 8)});
    before_ = {Counts(0), Counts(1)};
  }

  TierCounts Counts(size_t t) { return group_->table(t).Describe().tiers; }

  Moves Lookup(const Keys& keys, bool training = true) {
    const Status status = group_->Lookup({SumOf(0, {keys[0]}), SumOf(1, {keys[1]})}, training);
    EXPECT_TRUE(status.ok()) << status.message();
    Moves moves;
    for (size_t t = 0; t < 2; ++t) {
      const TierCounts counts = Counts(t);
      moves.hits.push_back(counts.hits - before_[t].hits);
      moves.misses.push_back(counts.misses - before_[t].misses);
      moves.rows.push_back((counts.bytes_up - before_[t].bytes_up) / (t == 0 ? 16 : 32));
      EXPECT_EQ(counts.bytes_down, counts.bytes_up);
      EXPECT_EQ(counts.bytes_on_disk, 0);
      before_[t] = counts;
    }
    return moves;
  }

  InlineExecutor executor_;
  EngineCase engine_ = GpuCase();
  std::unique_ptr<ContractGroup> group_;
  std::vector<TierCounts> before_;
};

TEST_F(GpuTiersTest, EachMissingRowMovesOnce) {
  EXPECT_EQ(Lookup({Range(0, 6), Range(50, 53)}), (Moves{{6, 3}, {0, 0}, {0, 0}})) << "there is room";
  EXPECT_EQ(Counts(0).rows_in_memory, 6);
  EXPECT_EQ(Lookup({Range(6, 11), Range(53, 56)}), (Moves{{2, 1}, {3, 2}, {3, 2}})) << "new rows come up";
  EXPECT_EQ(Lookup({Range(6, 11), {53, 54, 55, 55}}), (Moves{{5, 3}, {0, 0}, {0, 0}})) << "and stay";
  EXPECT_EQ(Lookup({{}, {50, 51, 52, 53, 54, 55}}), (Moves{{0, 4}, {0, 2}, {0, 0}}))
      << "all frames are needed";
  EXPECT_EQ(Counts(0).rows_in_memory, 8);
  EXPECT_EQ(Counts(1).rows_in_memory, 4);
}

TEST_F(GpuTiersTest, LookupsWithoutTrainingMoveRows) {
  Lookup({Range(0, 10), Range(0, 1)});
  // Two of the rows were left in host memory.
  EXPECT_EQ(Lookup({{0, 9, 0, 9, 8, -1}, {-1}}, /*training=*/false), (Moves{{1, 0}, {2, 0}, {2, 0}}));
  EXPECT_EQ(Lookup({{9, 8, 9}, {0, 0}}, /*training=*/false), (Moves{{2, 1}, {0, 0}, {0, 0}}));
}

TEST_F(GpuTiersTest, RowsThatWereErasedAreNotCounted) {
  Lookup({Range(0, 12), Range(0, 2)});
  int64_t erased = 0;
  ASSERT_TRUE(group_->Erase(0, Range(0, 5), &erased).ok());
  EXPECT_EQ(erased, 5);
  EXPECT_EQ(Counts(0).rows_in_memory, 3);
  EXPECT_EQ(Counts(1).rows_in_memory, 2);
  // The frames of erased rows are those of new ones with their numbers.
  EXPECT_EQ(Lookup({Range(100, 103), {}}), (Moves{{3, 0}, {0, 0}, {0, 0}}));
  EXPECT_EQ(Counts(0).rows_in_memory, 6);
}

TEST_F(GpuTiersTest, ReadingAWholeTableMovesNothing) {
  Lookup({Range(0, 40), Range(0, 40)});
  const TierCounts before = Counts(0);
  ContentsOf(&group_->table(0), group_->context());
  EXPECT_EQ(Counts(0).hits + Counts(0).misses, before.hits + before.misses);
  EXPECT_EQ(Counts(0).bytes_up, before.bytes_up);
  // Rows that come with a restore, too.
  ASSERT_TRUE(group_->Assign(0, Range(30, 60), std::vector<float>(30 * 4, 1.0f)).ok());
  EXPECT_EQ(Counts(0).bytes_up, before.bytes_up);
  EXPECT_EQ(Counts(0).rows_in_memory, 8);
}

TEST_F(GpuTiersTest, ADiskBelowNoLimitIsRefusedByName) {
  TableOptions options = ContractOptions("my_table", 4);
  options.tiers = {128, "/tmp", false};
  const auto made = engine_.engine->MakeTable(group_->context(), options);
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(made.status().message().find("'my_table': DRAM_SSDHASH is for tables on a CPU"),
            std::string::npos);
}

// A table with 8 rows in device memory and 4 in the host's, the others on disk.
class GpuDiskTest : public testing::Test {
 protected:
  void Make(int64_t dim, const std::string& folder = testing::TempDir(), int64_t capacity = 0) {
    TableOptions options = ContractOptions("items", dim);
    options.capacity = capacity;
    options.on_full = capacity > 0 ? OnFull::kEvictLru : OnFull::kError;
    Make(options, folder);
  }
  void Make(const TableOptions& options, const std::string& folder = testing::TempDir()) {
    const int64_t record_bytes = options.dim * 4;
    engine_.tiers = {8 * record_bytes, folder, /*by_frequency=*/false, 4 * (record_bytes + 16)};
    group_ = std::make_unique<ContractGroup>(engine_, executor_, std::vector<TableOptions>{options});
  }

  Status Lookup(const std::vector<int64_t>& keys) { return group_->Lookup({SumOf(0, {keys})}); }

  // How many rows a lookup read from the disk.
  int64_t DiskRows(const std::vector<int64_t>& keys) {
    const int64_t before = Counts().disk_rows;
    const Status status = Lookup(keys);
    EXPECT_TRUE(status.ok()) << status.message();
    return Counts().disk_rows - before;
  }

  TierCounts Counts() { return group_->table(0).Describe().tiers; }

  InlineExecutor executor_;
  EngineCase engine_ = GpuCase();
  std::unique_ptr<ContractGroup> group_;
};

TEST_F(GpuDiskTest, RowsGoDownAndComeBackOnce) {
  Make(4);
  for (int64_t key = 0; key < 40; key += 4) EXPECT_EQ(DiskRows(Range(key, key + 4)), 0) << "new rows";
  EXPECT_GT(Counts().bytes_on_disk, 0);
  EXPECT_EQ(Counts().rows_in_memory, 8);
  EXPECT_EQ(DiskRows({32, 33, 34, 35, 36, 37, 38, 39}), 0) << "the last ones are in device memory";
  EXPECT_EQ(DiskRows({28, 29, 30, 31}), 0) << "others in the host's";
  EXPECT_EQ(DiskRows({0, 1, 2, 3, 100}), 4);
  EXPECT_EQ(DiskRows({3, 2, 1, 0, 100}), 0);
  EXPECT_EQ(DiskRows({4, 4, 5}), 2);
  EXPECT_EQ(DiskRows(Range(0, 40)), 40 - 12) << "the rows of a call fit, whatever the memory";
  EXPECT_EQ(DiskRows(Range(0, 40)), 0);
}

// A row that is written without a lookup is a row like others, and so is one in the place of an erased row.
TEST_F(GpuDiskTest, AssignedRowsGoDownAndComeBackToo) {
  Make(4);
  const auto assign = [&](int64_t first, int64_t end, float value) {
    for (int64_t key = first; key < end; key += 2) {
      const std::vector<float> values(2 * 4, value);
      ASSERT_TRUE(group_->Assign(0, {key, key + 1}, values).ok());
    }
  };
  assign(0, 12, 1.0f);  // in memory
  int64_t erased = 0;
  ASSERT_TRUE(group_->Erase(0, {9, 10}, &erased).ok());
  assign(20, 22, 2.0f);
  assign(40, 60, 3.0f);
  ASSERT_TRUE(group_->Erase(0, {0, 1, 8, 11, 20, 40, 59}, &erased).ok());
  assign(80, 90, 4.0f);
  const std::vector<std::pair<int64_t, float>> expected = {{2, 1.0f},  {7, 1.0f},  {21, 2.0f}, {41, 3.0f},
                                                           {58, 3.0f}, {80, 4.0f}, {85, 4.0f}, {89, 4.0f}};
  for (const auto& [key, value] : expected) {
    EXPECT_EQ(group_->Rows(0, {key})[key], std::vector<float>(4, value)) << key;
  }
}

TEST_F(GpuDiskTest, ASaveEvictsSmallRowsWhereverTheyAre) {
  TableOptions options = ContractOptions("items", 4);
  options.eviction.kind = Eviction::Kind::kL2Weight;
  options.eviction.l2_weight_threshold = 0.01f;
  Make(options);
  for (int64_t key = 0; key < 60; key += 2) {
    std::vector<float> values(8, 1.0f);
    std::fill_n(values.begin(), 4, 0.001f);
    ASSERT_TRUE(group_->Assign(0, {key, key + 1}, values).ok());
  }
  ASSERT_TRUE(group_->table(0).Hold(group_->context()).value()->EvictForSave().ok());
  EXPECT_EQ(group_->table(0).Describe().rows, 30);
  for (int64_t key = 1; key < 60; key += 2) {
    EXPECT_EQ(group_->Rows(0, {key})[key], std::vector<float>(4, 1.0f)) << key;
  }
}

TEST_F(GpuDiskTest, AReaderOfAllRowsReadsEachRowAboutOnce) {
  Make(4);
  for (int64_t key = 0; key < 40; key += 4) ASSERT_TRUE(Lookup(Range(key, key + 4)).ok());
  const int64_t before = Counts().disk_rows;
  ContentsOf(&group_->table(0), group_->context());
  // Those in host memory too, if rows of an earlier piece displaced them.
  EXPECT_GE(Counts().disk_rows - before, 28);
  EXPECT_LE(Counts().disk_rows - before, 32);
  EXPECT_EQ(DiskRows({32, 33, 34, 35, 36, 37, 38, 39}), 0) << "those in device memory";
}

TEST_F(GpuDiskTest, AFullDiskIsAnErrorAndChangesNothing) {
  constexpr int64_t kDim = 1 << 14;
  for (const int64_t capacity : {0, 50}) {
    Make(kDim, testing::TempDir(), capacity);
    const auto rows = [&] { return group_->table(0).Describe().rows; };
    int64_t key = 0;
    {
      const FileLimit limit(RowFile::kSegmentBytes);
      Status status;
      int64_t before = 0;
      while (status.ok() && key < 200) {
        before = rows();
        status = Lookup({key, key + 1, key - key % 20});
        key += status.ok() ? 2 : 0;
      }
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
      EXPECT_NE(status.message().find("'items'"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find(testing::TempDir()), std::string::npos) << status.message();
      EXPECT_EQ(before, capacity > 0 ? capacity : key) << "rows were evicted, if they are";
      EXPECT_EQ(rows(), before);
      if (capacity == 0) {
        const std::vector<float> values(kDim, 7.0f);
        EXPECT_EQ(group_->Assign(0, {key}, values).code(), StatusCode::kResourceExhausted);
        EXPECT_EQ(rows(), before);
      }
    }
    EXPECT_GT(key, 50);
    const TableOptions options = ContractOptions("items", kDim);
    for (int64_t row = 0; row < key; ++row) {
      EXPECT_EQ(group_->Rows(0, {row})[row], ReferenceInitialRow(options, row));
    }
    EXPECT_TRUE(Lookup({key, key + 1, 0}).ok());
    EXPECT_EQ(rows(), capacity > 0 ? capacity : key + 2);
  }
}

// The open file in a folder that has no name any more.
int FileIn(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string path = std::filesystem::read_symlink(entry, error).string();
    if (path.rfind(folder, 0) == 0) return std::stoi(entry.path().filename().string());
  }
  return -1;
}

TEST_F(GpuDiskTest, ASlowDiskIsAskedForWhatIsPreparedAhead) {
  // More often on a disk than the folder of tests. A record takes a page.
  const std::string folder = "/var/tmp/rows_of_gpu_tiers_test";
  Make(1024, folder);
  for (int64_t key = 0; key < 80; key += 4) ASSERT_TRUE(Lookup(Range(key, key + 4)).ok());
  const int file = FileIn(folder);
  ASSERT_GE(file, 0);
  constexpr int64_t kPages = 60;
  const auto forget = [&] {
    ASSERT_EQ(fdatasync(file), 0);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  };
  forget();
  if (PagesInMemory(file, kPages) > kPages / 4) GTEST_SKIP() << "the file system keeps all pages";
  // Nothing is known of the disk yet.
  const ContractBatch batch = {SumOf(0, {Range(0, 60)})};
  ASSERT_TRUE(group_->Merge(batch).ok());
  EXPECT_LE(PagesInMemory(file, kPages), kPages / 4);
  EXPECT_EQ(DiskRows({61}), 1);
  forget();
  ASSERT_TRUE(group_->Merge(batch).ok());
  for (int tries = 0; PagesInMemory(file, kPages) < kPages && tries < 1000; ++tries) usleep(10'000);
  EXPECT_EQ(PagesInMemory(file, kPages), kPages);
  EXPECT_EQ(Counts().rows_in_memory, 8);
  rmdir(folder.c_str());
}

}  // namespace
}  // namespace sok
