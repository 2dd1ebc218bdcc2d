#include "cc/checkpoint/raw_rows.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "cc/base/testing/test_ids.h"
#include "cc/base/thread_pool.h"
#include "cc/checkpoint/testing/saved_ranks.h"

namespace sok {
namespace {

namespace fs = std::filesystem;

class RawRowsTest : public ::testing::Test {
 protected:
  RawRowsTest()
      : directory_(
            (fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name())
                .string()) {
    fs::remove_all(directory_);
    options_.name = "items";
    options_.dim = 3;
    options_.initializer.seed = 5;
  }

  // Tables whose rows lag behind: exact Adam postpones the steps of rows without gradients.
  Tables MakeTrained(int ranks) {
    Tables tables = MakeTables(options_, ranks);
    std::vector<int64_t> keys = HostileIds();
    for (const int64_t key : DistinctIds(200, 9)) keys.push_back(key);
    std::mt19937_64 random(4);
    for (int step = 0; step < 4; ++step) {
      EXPECT_TRUE(
          TrainOnSome(tables, "adam", {0.01f, 0.9f, 0.999f, 1e-8f}, keys, step == 0 ? 1.0 : 0.3, &random)
              .ok());
    }
    return tables;
  }

  static std::vector<int64_t> CountsOf(const Tables& tables) {
    std::vector<int64_t> counts;
    for (const auto& table : tables) counts.push_back(table->Describe().rows);
    return counts;
  }

  Status WriteAll(const Tables& tables, const std::vector<int64_t>& counts) {
    InlineExecutor executor;
    const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const RawFilesWriter writer(directory_, options_.name, rows, options_.dim);
    SOK_RETURN_IF_ERROR(writer.Begin());
    for (const auto& table : tables) {
      SOK_RETURN_IF_ERROR(WriteRawRows(ContextOn(executor), table.get(), counts, writer));
    }
    return writer.Publish();
  }

  StatusOr<Tables> ReadAll(int ranks) {
    InlineExecutor executor;
    return ReadAll(ranks, executor);
  }
  StatusOr<Tables> ReadAll(int ranks, Executor& executor) {
    Tables tables;
    options_.ranks = ranks;
    for (options_.rank = 0; options_.rank < ranks; ++options_.rank) {
      auto reader = RawFilesReader::Open(directory_, options_.name, options_.dim);
      SOK_RETURN_IF_ERROR(reader.status());
      std::vector<int64_t> keys;
      SOK_RETURN_IF_ERROR(reader.value().ReadKeys(executor, &keys));
      auto table = LoadRawRows(ContextOn(executor), EngineOfTests().engine, options_, keys, reader.value());
      SOK_RETURN_IF_ERROR(table.status());
      tables.push_back(std::move(table.value()));
    }
    return tables;
  }

  // The weights of all rows, by key, after the steps that the optimizer has postponed.
  std::map<int64_t, std::vector<float>> WeightsOf(const Tables& tables) {
    std::map<int64_t, std::vector<float>> weights;
    for (const auto& table : tables) {
      BringUpToDate(table.get());
      for (const auto& [key, row] : StateOf({table}).rows) {
        const std::vector<float>& floats = std::get<0>(row);
        weights[key].assign(floats.begin(), floats.begin() + options_.dim);
      }
    }
    return weights;
  }

  const std::string directory_;
  TableOptions options_;
};

TEST_F(RawRowsTest, ComeBackOnAnyNumberOfRanks) {
  for (const int from : {1, 2, 3}) {
    const Tables tables = MakeTrained(from);
    ASSERT_TRUE(WriteAll(tables, CountsOf(tables)).ok());
    const auto weights = WeightsOf(tables);
    ASSERT_GT(weights.size(), 200U);
    for (const int to : {1, 3, 4}) {
      const auto read = ReadAll(to);
      ASSERT_TRUE(read.ok()) << read.status().message();
      EXPECT_EQ(WeightsOf(read.value()), weights) << from << " ranks to " << to;
    }
  }
}

// Two pieces, one of which has two blocks.
TEST_F(RawRowsTest, ThreadsReadTheBlocksOfPieces) {
  constexpr int64_t kRows = 40000;
  options_.dim = 10;
  const Tables tables = MakeTables(options_, 1);
  std::mt19937_64 random(2);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, DistinctIds(kRows, 3), &random).ok());
  ASSERT_TRUE(WriteAll(tables, {kRows}).ok());
  const auto weights = WeightsOf(tables);
  ThreadPool pool(3, 0);
  for (const int ranks : {1, 2}) {
    const auto read = ReadAll(ranks, pool);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_TRUE(WeightsOf(read.value()) == weights) << ranks << " ranks";
  }
}

TEST_F(RawRowsTest, RowsInsertedAfterTheCountAreLeftOut) {
  const Tables tables = MakeTrained(1);
  const std::vector<int64_t> counts = CountsOf(tables);
  const auto weights = WeightsOf(tables);
  std::mt19937_64 random(1);
  ASSERT_TRUE(TrainOn(tables, "adam", {0.0f, 0.9f, 0.999f, 1e-8f}, {123456789, 987654321}, &random).ok());
  ASSERT_EQ(tables[0]->Describe().rows, counts[0] + 2);
  ASSERT_TRUE(WriteAll(tables, counts).ok());
  const auto read = ReadAll(1);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value()[0]->Describe().rows, counts[0]);
}

TEST_F(RawRowsTest, FewerRowsThanCountedIsAnErrorWithBothNumbers) {
  const Tables tables = MakeTrained(1);
  std::vector<int64_t> counts = CountsOf(tables);
  ASSERT_TRUE(Erase(tables[0].get(), {KeysOf(tables[0].get())[0]}).ok());
  const Status status = WriteAll(tables, counts);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  for (const std::string& word :
       {std::string("'items'"), std::to_string(counts[0]), std::to_string(counts[0] - 1)}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
}

TEST_F(RawRowsTest, TablesWithoutHashingNeedExactlyTheirKeys) {
  options_.use_hashtable = false;
  const auto with_keys = [&](int64_t keys, int ranks) {
    options_.placement = Placement::ByKey(keys);
    options_.capacity = (keys + ranks - 1) / ranks;
  };
  with_keys(11, 2);
  const Tables tables = MakeTables(options_, 2);
  ASSERT_TRUE(WriteAll(tables, CountsOf(tables)).ok());
  with_keys(11, 3);
  const auto read = ReadAll(3);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(WeightsOf(read.value()), WeightsOf(tables));
  with_keys(12, 3);
  const Status fewer = ReadAll(3).status();
  EXPECT_EQ(fewer.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(fewer.message().find("'items' has 4 rows on rank 2, but the files have only 3"),
            std::string::npos)
      << fewer.message();
  with_keys(10, 3);
  const Status more = ReadAll(3).status();
  EXPECT_EQ(more.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(more.message().find("no row for key 10"), std::string::npos) << more.message();
}

TEST_F(RawRowsTest, MoreRowsThanTheCapacityIsAnError) {
  const Tables tables = MakeTrained(1);
  ASSERT_TRUE(WriteAll(tables, CountsOf(tables)).ok());
  options_.capacity = 10;
  const Status status = ReadAll(1).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_NE(status.message().find("'items'"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace sok
