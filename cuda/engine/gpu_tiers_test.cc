// What lookups in tables with tiers move between device and host memory. gpu_tiers_contract_test shows that
// it changes no results.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

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
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
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

TEST_F(GpuTiersTest, TiersOfADiskAreRefusedByName) {
  TableOptions options = ContractOptions("my_table", 4);
  options.tiers = {128, "/tmp", false};
  const auto made = engine_.engine->MakeTable(group_->context(), options);
  EXPECT_EQ(made.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(made.status().message().find("'my_table': tables on a GPU have no disk"), std::string::npos);
}

}  // namespace
}  // namespace sok
