#include "cc/cpu/table/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/table/testing/test_table.h"

namespace sok {
namespace {

TEST(TableTest, RowNumbersFollowTheOrderOfInsertion) {
  auto table = MakeTestTable(TestOptions(2));
  EXPECT_EQ(RowsOf(table.get(), {50, -7, 3}), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(RowsOf(table.get(), {3, 99, 50}), (std::vector<int64_t>{2, 3, 0}));
  EXPECT_EQ(table->size(), 4);
  EXPECT_EQ(table->Keys(), (std::vector<int64_t>{50, -7, 3, 99}));
}

TEST(TableTest, RowsKeepTheirValuesWhileTheTableGrows) {
  auto table = MakeTestTable(TestOptions(3));
  RowsOf(table.get(), {42});
  table->weights(0)[1] = 7.0f;
  const float* before = table->weights(0);
  std::vector<int64_t> ids(100000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = 1000 + static_cast<int64_t>(i);
  RowsOf(table.get(), ids);
  EXPECT_EQ(table->weights(0), before) << "rows do not move";
  EXPECT_EQ(table->weights(0)[1], 7.0f);
  EXPECT_EQ(FoundRows(*table, {42, 1000, 100999}), (std::vector<int64_t>{0, 1, 100000}));
}

TEST(TableTest, OtherThreadsFindRowsWhileTheTableGrows) {
  constexpr int64_t kBatch = 2500;
  const std::vector<int64_t> ids = DistinctIds(60 * kBatch, 1);
  auto table = MakeTestTable(TestOptions(3));
  const auto check = [&](Executor& executor, int64_t first) {
    const Span<const int64_t> asked = Span<const int64_t>(ids).subspan(first, 400);
    std::vector<int64_t> rows(asked.size());
    const MutexLock lock(table->mutex());
    ASSERT_TRUE(table->Find(executor, asked, Span<int64_t>(rows)).ok());
    std::vector<float> initial(3);
    for (int64_t i = 0; i < asked.size(); ++i) {
      // Rows are numbered in the order of their insertion.
      ASSERT_EQ(rows[i], first + i < table->size() ? first + i : Table::kAbsent);
      if (rows[i] == Table::kAbsent) continue;
      table->InitialRow(asked[i], Span<float>(initial));
      ASSERT_EQ(WeightsOf(*table, rows[i]), initial);
    }
  };
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (uint32_t seed = 1; seed <= 2; ++seed) {
    readers.emplace_back([&, seed] {
      std::mt19937 random(seed);
      ThreadPool executor(2, 0);
      while (!done) check(executor, static_cast<int64_t>(random() % (ids.size() - 400)));
    });
  }
  ThreadPool executor(3, 0);
  for (int64_t first = 0; first < static_cast<int64_t>(ids.size()); first += kBatch) {
    std::vector<int64_t> rows(kBatch);
    std::vector<int64_t> read_default;
    const MutexLock lock(table->mutex());
    EXPECT_TRUE(table
                    ->FindForTraining(executor, Span<const int64_t>(ids).subspan(first, kBatch), {},
                                      Span<int64_t>(rows), &read_default)
                    .ok());
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  for (int64_t first = 0; first < static_cast<int64_t>(ids.size()); first += 400) check(executor, first);
}

TEST(TableTest, WithoutHashingThePlacementDeterminesTheRowsOfARank) {
  InlineExecutor executor;
  struct Case {
    Placement placement;
    std::vector<int64_t> keys;  // on rank 1
  };
  for (const Case& c : {Case{Placement(), {1, 4, 7, 10, 13}}, Case{Placement::OneRank(1), {0, 1, 2, 3, 4}},
                        Case{Placement::OneRank(2), {}}, Case{Placement::AllRanks(), {0, 1, 2, 3, 4}},
                        Case{Placement::Ranges({0, 2, 6, 11}), {2, 3, 4, 5}}}) {
    SCOPED_TRACE(c.placement.Text());
    TableOptions options = TestOptions(2, 5);
    options.use_hashtable = false;
    options.ranks = 3;
    options.rank = 1;
    options.placement = c.placement;
    auto table = MakeTestTable(options);
    EXPECT_EQ(table->size(), static_cast<int64_t>(c.keys.size()));
    EXPECT_EQ(table->Keys(), c.keys);
    const std::vector<int64_t> rows = FoundRows(*table, c.keys);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i], static_cast<int64_t>(i));
      EXPECT_EQ(WeightsOf(*table, rows[i]), InitialWeights(*table, c.keys[i]));
    }
    // Assign gets all keys, and each rank sets those that it holds.
    std::vector<int64_t> keys;
    std::vector<float> values;
    for (int64_t key = 0; key < c.placement.StaticKeys(3, 5); ++key) {
      keys.push_back(key);
      values.insert(values.end(), {static_cast<float>(key), -1.0f});
    }
    ASSERT_TRUE(table->Assign({executor}, keys, values.data()).ok());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(WeightsOf(*table, rows[i])[0], static_cast<float>(c.keys[i]));
    }
  }
}

TEST(TableTest, ErrorsNamePlacementsThatDoNotFit) {
  InlineExecutor executor;
  TableOptions options = TestOptions(2, 5);
  options.ranks = 3;
  options.placement = Placement::OneRank(3);
  ExpectMentions(Table::Create(executor, options).status(), {"'table'", "one_rank:3"});
  options.placement = Placement::Ranges({0, 5, 10});
  ExpectMentions(Table::Create(executor, options).status(), {"'table'", "ranges:0,5,10"});
  options.placement = Placement::Ranges({0, 5, 10, 16});
  EXPECT_TRUE(Table::Create(executor, options).ok());
  options.use_hashtable = false;
  ExpectMentions(Table::Create(executor, options).status(), {"'table'", "ranges:0,5,10,16", "6, not 5"});
}

// Ranks of older versions, which know placement by key only, compare fingerprints of this text.
TEST(TableTest, OnlyMemoryOfTheHostIsDescribed) {
  TableOptions options = TestOptions(2);
  const std::string on_device = Describe(options);
  options.memory = RowMemory::kHost;
  EXPECT_EQ(Describe(options), on_device + ", rows in memory of the host");
  EXPECT_STREQ(NameOf(RowMemory::kDevice), "device");
  EXPECT_TRUE(CheckOptions(options).ok());
}

TEST(TableTest, PlacementByKeyIsNotDescribed) {
  TableOptions options = TestOptions(2, 5);
  const std::string by_key =
      "'table' of dim 2, capacity 5, hashed int64 keys, initial values uniform(-1, 1) of seed 17";
  EXPECT_EQ(Describe(options), by_key);
  options.placement = Placement::AllRanks();
  EXPECT_EQ(Describe(options), by_key + ", placed as all_ranks");
}

TableOptions OptionsWithRows(uint32_t rows, const std::vector<float>& given) {
  TableOptions options = TestOptions(2);
  options.initializer = Initializer(InitializerKind::kGiven, 0.0f, 0.0f, 0, rows);
  options.initial_rows = given;
  return options;
}

TEST(TableTest, GivenInitialRowsAreDescribed) {
  const std::string text = Describe(OptionsWithRows(2, {0.5f, -3.0f, 1, 2}));
  EXPECT_EQ(text.substr(0, text.rfind(' ')),
            "'table' of dim 2, no bound, hashed int64 keys, 2 given initial rows, which begin with 0.5, of "
            "fingerprint");
  EXPECT_EQ(Describe(OptionsWithRows(2, {0.5f, -3.0f, 1, 2})), text);
  EXPECT_NE(Describe(OptionsWithRows(2, {0.5f, -3.0f, 1, 3})), text);
}

TEST(TableTest, RowsBeginWithTheGivenRows) {
  InlineExecutor executor;
  const TableOptions options = OptionsWithRows(3, {0.5f, -3.0f, 2e38f, 1, 7, 8});
  const auto table = std::move(Table::Create(executor, options).value());
  const std::vector<int64_t> ids = HostileIds();
  std::vector<int64_t> rows(ids.size());
  ASSERT_TRUE(table->FindOrMake(executor, ids, rows).ok());
  for (size_t i = 0; i < ids.size(); ++i) {
    const float* const given = options.initial_rows.data() + (ids[i] % 3 + 3) % 3 * 2;
    EXPECT_EQ(std::vector<float>(table->weights(rows[i]), table->weights(rows[i]) + 2),
              std::vector<float>(given, given + 2))
        << ids[i];
  }
}

TEST(TableTest, ErrorsNameGivenRowsThatDoNotFit) {
  InlineExecutor executor;
  const auto made = [&](const TableOptions& options) { return Table::Create(executor, options).status(); };
  EXPECT_TRUE(made(OptionsWithRows(1, {1, 2})).ok());
  ExpectMentions(made(OptionsWithRows(1, {1})), {"'table'", "1 floats as 1 initial rows of 2"});
  ExpectMentions(made(OptionsWithRows(2, {1, 2})), {"'table'", "2 floats as 2 initial rows of 2"});
  ExpectMentions(made(OptionsWithRows(0, {})), {"'table'", "at least one initial row"});
  ExpectMentions(made(OptionsWithRows(2, {1, 2, 3, -std::numeric_limits<float>::infinity()})),
                 {"'table'", "row 1, column 1 is -inf"});
  TableOptions not_given = TestOptions(2);
  not_given.initial_rows = {1, 2};
  ExpectMentions(made(not_given), {"'table'", "2 floats as 0 initial rows of 2"});
}

TEST(TableTest, ErrorsNameSizesThatCannotBeAddressed) {
  InlineExecutor executor;
  for (const int64_t capacity : {int64_t{1} << 61, int64_t{1} << 62, std::numeric_limits<int64_t>::max()}) {
    ExpectMentions(Table::Create(executor, TestOptions(1, capacity)).status(),
                   {"'table'", std::to_string(capacity)});
  }
  TableOptions many_ranks = TestOptions(1024, int64_t{1} << 40);
  EXPECT_TRUE(Table::Create(executor, many_ranks).ok());
  many_ranks.ranks = 1 << 11;
  ExpectMentions(Table::Create(executor, many_ranks).status(), {"'table'", "2048 ranks"});
  // Addressable, but more than any memory.
  TableOptions direct = TestOptions(1024, int64_t{1} << 40);
  direct.use_hashtable = false;
  const Status status = Table::Create(executor, direct).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  ExpectMentions(status, {"'table'"});
}

TEST(TableTest, ErrorsNameInitialValuesThatAreNotFinite) {
  InlineExecutor executor;
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto made = [&](InitializerKind kind, float a, float b) {
    TableOptions options = TestOptions(2);
    options.initializer.kind = kind;
    options.initializer.a = a;
    options.initializer.b = b;
    return Table::Create(executor, options).status();
  };
  for (const float bad : {inf, -inf, nan}) {
    ExpectMentions(made(InitializerKind::kConstant, bad, 0.0f), {"'table'", "initial values constant("});
    for (const InitializerKind kind :
         {InitializerKind::kUniform, InitializerKind::kNormal, InitializerKind::kTruncatedNormal}) {
      EXPECT_EQ(made(kind, bad, 1.0f).code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(made(kind, 0.0f, bad).code(), StatusCode::kInvalidArgument);
    }
  }
  EXPECT_FALSE(made(InitializerKind::kNormal, 0.0f, 1e38f).ok());
  EXPECT_TRUE(made(InitializerKind::kNormal, 0.0f, 3e37f).ok());
  EXPECT_TRUE(made(InitializerKind::kTruncatedNormal, 0.0f, 1e38f).ok());
  EXPECT_TRUE(made(InitializerKind::kUniform, -3e38f, 3e38f).ok());
}

TEST(TableTest, AssignSkipsTheKeysOfOtherRanks) {
  TableOptions options = TestOptions(1);
  options.ranks = 3;
  options.rank = 2;
  auto table = MakeTestTable(options);
  InlineExecutor executor;
  const std::vector<int64_t> keys = {0, 2, 4, 5};
  const float values[] = {10, 11, 12, 13};
  ASSERT_TRUE(table->Assign({executor}, keys, values).ok());
  EXPECT_EQ(table->Keys(), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(WeightsOf(*table, 1), (std::vector<float>{13}));
}

TEST(TableTrainingTest, ThreadsDoNotChangeResults) {
  std::vector<std::vector<float>> results;
  for (int threads : {1, 2, 3, 4}) {
    ThreadPool executor(threads);
    auto table = MakeTestTable(TestOptions(5));
    std::mt19937 random(3);
    std::vector<int64_t> ids(20000);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 977);
    std::vector<int64_t> rows(ids.size());
    ASSERT_TRUE(table->FindOrMake(executor, ids, Span<int64_t>(rows)).ok());
    std::vector<float> grads(ids.size() * 5);
    for (float& grad : grads) grad = static_cast<float>(random() % 1000) / 500.0f - 1.0f;
    for (int64_t& row : rows) row = static_cast<int64_t>(random() % 5000);
    const std::vector<float> hyper = {0.01f, 0.9f, 0.999f, 1e-8f};
    ASSERT_TRUE(table->ApplyGradients({executor}, "lazy_adam", hyper, rows, grads.data(), false).ok());
    results.emplace_back();
    for (int64_t row = 0; row < table->size(); ++row) {
      results.back().insert(results.back().end(), table->weights(row), table->weights(row) + 5);
    }
    EXPECT_EQ(results.back(), results.front()) << threads << " threads";
  }
}

}  // namespace
}  // namespace sok
