#include "cc/checkpoint/table_replacement.h"

#include <gtest/gtest.h>

#include <utility>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/saved_ranks.h"

namespace sok {
namespace {

constexpr char kPrefix[] = "/model.ckpt-1";

class TableReplacementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.name = "items";
    options_.dim = 32;  // rows take more bytes than the index
    options_.initializer.seed = 5;
    saved_ = MakeTrained(1);
    SaveRequest request;
    request.prefix = kPrefix;
    request.id = SaveId(1);
    request.files = &files_;
    name_ = Save(saved_, request).value();
  }

  // Tables of different seeds have different keys.
  Tables MakeTrained(uint64_t seed) {
    Tables tables = MakeTables(options_, 1);
    std::mt19937_64 random(seed);
    EXPECT_TRUE(TrainOn(tables, "lazy_adam", kAdam, DistinctIds(50, seed), &random).ok());
    return tables;
  }

  StatusOr<TableReplacement> Check(EngineTable* current, int64_t spare = 0) {
    InlineExecutor executor;
    OpenedCheckpoints opened(files_);
    return TableReplacement::Check(ContextOn(executor), current, opened, kPrefix, name_, RestoreParts(),
                                   &spare);
  }

  // Loads, and keeps the rows that each table had when it was handed over.
  Status Load(const TableReplacement& replacement, EngineTable* current) {
    InlineExecutor executor;
    return replacement.Load(ContextOn(executor), current, [&](std::shared_ptr<EngineTable> table) {
      rows_.push_back(table->Describe().rows);
      now_ = std::move(table);
    });
  }

  // Cuts the largest file, in which the rows are, to half.
  void DamageRows() {
    std::string* largest = nullptr;
    for (const auto& [path, bytes] : files_.AllFiles()) {
      if (largest == nullptr || bytes->size() > largest->size()) largest = bytes;
    }
    ASSERT_NE(largest, nullptr);
    largest->resize(largest->size() / 2);
  }

  MemoryFiles files_;
  TableOptions options_;
  Tables saved_;
  std::string name_;
  std::vector<int64_t> rows_;
  std::shared_ptr<EngineTable> now_;
};

TEST_F(TableReplacementTest, AnEmptyTableIsReplacedAtOnce) {
  const Tables current = MakeTables(options_, 1);
  const auto replacement = Check(current[0].get());
  ASSERT_TRUE(replacement.ok()) << replacement.status().message();
  ASSERT_TRUE(Load(replacement.value(), current[0].get()).ok());
  EXPECT_EQ(rows_, std::vector<int64_t>{50});
  EXPECT_TRUE(StateOf({now_}) == StateOf(saved_));
}

TEST_F(TableReplacementTest, ASmallTableIsLoadedBesideTheOldOne) {
  const Tables current = MakeTrained(2);
  const auto replacement = Check(current[0].get(), 1 << 20);
  ASSERT_TRUE(replacement.ok()) << replacement.status().message();
  DamageRows();  // not read again
  ASSERT_TRUE(Load(replacement.value(), current[0].get()).ok());
  EXPECT_EQ(rows_, std::vector<int64_t>{50});
  EXPECT_TRUE(StateOf({now_}) == StateOf(saved_));
}

TEST_F(TableReplacementTest, TwoFullTablesAreNeverInMemory) {
  const Tables current = MakeTrained(2);
  const auto replacement = Check(current[0].get());
  ASSERT_TRUE(replacement.ok()) << replacement.status().message();
  ASSERT_TRUE(Load(replacement.value(), current[0].get()).ok());
  EXPECT_EQ(rows_, (std::vector<int64_t>{0, 50}));
  EXPECT_TRUE(StateOf({now_}) == StateOf(saved_));
}

TEST_F(TableReplacementTest, ADamagedCheckpointReplacesNothing) {
  DamageRows();
  for (const Tables& current : {MakeTables(options_, 1), MakeTrained(2)}) {
    const TableState before = StateOf(current);
    EXPECT_EQ(Check(current[0].get()).status().code(), StatusCode::kDataLoss);
    EXPECT_TRUE(StateOf(current) == before);
  }
}

TEST_F(TableReplacementTest, ADiskThatFailsDuringTheLoadLeavesANewTable) {
  const Tables current = MakeTrained(2);
  const auto replacement = Check(current[0].get());
  ASSERT_TRUE(replacement.ok()) << replacement.status().message();
  DamageRows();
  EXPECT_EQ(Load(replacement.value(), current[0].get()).code(), StatusCode::kDataLoss);
  EXPECT_EQ(rows_, (std::vector<int64_t>{0, 0}));
  EXPECT_TRUE(StateOf({now_}) == StateOf(MakeTables(options_, 1)));
}

TEST_F(TableReplacementTest, ChangesAreTrackedAsBefore) {
  for (const bool tracked : {false, true}) {
    const Tables current = MakeTrained(2);
    if (tracked) {
      WhileHeld(current[0].get(), [](HeldTable* held) { return held->TrackChanges(); });
    }
    const auto replacement = Check(current[0].get());
    ASSERT_TRUE(Load(replacement.value(), current[0].get()).ok());
    WhileHeld(now_.get(), [&](HeldTable* held) {
      EXPECT_EQ(held->state().tracks_changes, tracked);
      return OkStatus();
    });
  }
}

}  // namespace
}  // namespace sok
