// With any placement, lookups and training over ranks give the same results as one process.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "cc/base/thread_pool.h"
#include "cc/cpu/sharded/testing/random_batches.h"
#include "cc/cpu/sharded/testing/sharded_step.h"

namespace sok::sharded_placement {
namespace {

using Gradients = std::vector<std::vector<std::vector<float>>>;

struct NamedOptimizer {
  std::string name;
  std::vector<float> hyper;
};

const NamedOptimizer kOptimizers[] = {
    {"sgd", {0.1f}}, {"adagrad", {0.1f, 0.1f, 1e-7f}}, {"adam", {0.01f, 0.9f, 0.999f, 1e-8f}}};

void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected, float tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * (1.0f + std::abs(expected[i]))) << i;
  }
}

// Uneven ranges of the keys of a table without hashing. One is empty if there are three or more.
std::vector<int64_t> Boundaries(int ranks) {
  std::vector<int64_t> boundaries = {0};
  for (int r = 1; r < ranks; ++r) boundaries.push_back(r == 2 ? boundaries.back() : 70 * r);
  boundaries.push_back(kStaticKeys);
  return boundaries;
}

Placement PlacementOf(PlacementKind kind, int ranks) {
  switch (kind) {
    case PlacementKind::kByKey:
      break;
    case PlacementKind::kOneRank:
      return Placement::OneRank(ranks / 2);
    case PlacementKind::kAllRanks:
      return Placement::AllRanks();
    case PlacementKind::kRanges:
      return Placement::Ranges(Boundaries(ranks));
  }
  return Placement();
}

// Makes the table of RandomBatches with another placement.
std::unique_ptr<Table> MakePlaced(PlacementKind kind, int t, int rank, int ranks) {
  TableOptions options = OptionsOf(t, rank, ranks);
  options.placement = PlacementOf(kind, ranks);
  if (!options.use_hashtable && kind != PlacementKind::kByKey) {
    options.capacity = kStaticKeys;
    if (kind == PlacementKind::kRanges) {
      options.capacity = 0;
      for (int r = 0; r < ranks; ++r) {
        const StaticRows rows = options.placement.RowsOn(r, ranks, 0);
        options.capacity = std::max(options.capacity, rows.count);
      }
    }
  }
  InlineExecutor executor;
  auto table = Table::Create(executor, options);
  EXPECT_TRUE(table.ok()) << table.status().message();
  return std::move(table.value());
}

// Weights and slots of a table's rows by key, brought up to date.
std::map<int64_t, std::vector<float>> Records(Table* table) {
  InlineExecutor executor;
  const std::vector<int64_t> rows = table->Rows();
  table->BringUpToDate(executor, rows);
  std::map<int64_t, std::vector<float>> records;
  for (const int64_t row : rows) {
    const float* record = table->weights(row);
    records[table->key(row)].assign(record, record + table->options().dim + table->slot_width());
  }
  return records;
}

struct Case {
  PlacementKind kind;
  int ranks;
  ExchangeMode mode;
};

class ShardedPlacementTest : public testing::TestWithParam<Case> {
 protected:
  ShardedGroup MakeGroup(int tables) {
    return ShardedGroup(
        GetParam().ranks, std::vector<ExchangeMode>(tables, GetParam().mode), executor_,
        [](int t, int rank, int ranks) { return MakePlaced(GetParam().kind, t, rank, ranks); });
  }
  OneProcess MakeOne(int tables) {
    OneProcess one;
    for (int t = 0; t < tables; ++t) one.tables.push_back(MakeTable(t, 0, 1));
    return one;
  }

  void ExpectAllOk(ShardedGroup& group) {
    for (int r = 0; r < group.size(); ++r) {
      ASSERT_TRUE(group.rank(r).status.ok()) << group.rank(r).status.message();
    }
  }

  // Each rank has the rows that the placement gives it, replicas have the same bits, and all rows equal those
  // of one process.
  void ExpectSameTables(ShardedGroup& group, const OneProcess& one, float tolerance) {
    for (size_t t = 0; t < one.tables.size(); ++t) {
      SCOPED_TRACE(t);
      std::map<int64_t, std::vector<float>> all;
      for (int r = 0; r < group.size(); ++r) {
        Table* table = group.rank(r).tables[t].get();
        const auto records = Records(table);
        for (const auto& [key, record] : records) ASSERT_TRUE(table->key_owners().Holds(r, key)) << key;
        if (table->options().placement.is_replicated() && r > 0) {
          ASSERT_TRUE(records == all) << "replica " << r;
        }
        all.insert(records.begin(), records.end());
      }
      const auto expected = Records(one.tables[t].get());
      ASSERT_EQ(all.size(), expected.size());
      for (const auto& [key, record] : expected) {
        ASSERT_TRUE(all.count(key)) << key;
        ExpectNear(all.at(key), record, tolerance);
      }
    }
  }

  ThreadPool executor_{3, /*min_block_ns=*/0};
};

TEST_P(ShardedPlacementTest, TrainingEqualsOneProcess) {
  const int ranks = GetParam().ranks;
  const Shape shape = {6, GetParam().mode == ExchangeMode::kRows ? 11 : 6, 25,
                       GetParam().mode == ExchangeMode::kRows};
  const std::vector<ExchangeMode> modes(shape.tables, GetParam().mode);
  for (const NamedOptimizer& optimizer : kOptimizers) {
    SCOPED_TRACE(optimizer.name);
    ShardedGroup group = MakeGroup(shape.tables);
    OneProcess one = MakeOne(shape.tables);
    for (uint64_t step = 0; step < 4; ++step) {
      const std::vector<Batch> batches = RandomBatches(step, ranks, shape, modes);
      const Gradients gradients = RandomGradients(step, batches);
      group.Forward(batches);
      const GradientsById expected = one.Step(executor_, batches, gradients);
      ASSERT_TRUE(one.status.ok()) << one.status.message();
      ExpectAllOk(group);
      for (int r = 0; r < ranks; ++r) {
        for (size_t l = 0; l < batches[r].lookups.size(); ++l) {
          ExpectNear(group.rank(r).outputs.values[l], one.outputs[r].values[l], 1e-4f);
        }
      }
      group.BackwardAndTrain(gradients, GradientFormat::kFloat32, 2.0f, optimizer.name,
                             std::vector<std::vector<float>>(ranks, optimizer.hyper));
      ExpectAllOk(group);
      for (size_t t = 0; t < one.tables.size(); ++t) {
        std::vector<int64_t> keys;
        std::vector<float> sums;
        for (const auto& [key, sum] : expected[t]) {
          keys.push_back(key);
          for (const float value : sum) sums.push_back(value / 2.0f);
        }
        std::vector<int64_t> rows(keys.size());
        ASSERT_TRUE(one.tables[t]->Find(executor_, keys, Span<int64_t>(rows)).ok());
        ASSERT_TRUE(
            one.tables[t]
                ->ApplyGradients({executor_}, optimizer.name, optimizer.hyper, rows, sums.data(), true)
                .ok());
      }
    }
    ExpectSameTables(group, one, 1e-4f);
  }
}

// The sums of gradients in memory, for every gradient format.
TEST_P(ShardedPlacementTest, GradientsEqualOneProcess) {
  const int ranks = GetParam().ranks;
  const Shape shape = {4, 4, 30, false};
  const std::vector<ExchangeMode> modes(shape.tables, GetParam().mode);
  for (const GradientFormat format :
       {GradientFormat::kFloat32, GradientFormat::kFloat16, GradientFormat::kBfloat16}) {
    const float tolerance = format == GradientFormat::kFloat32 ? 1e-5f : 2e-2f;
    ShardedGroup group = MakeGroup(shape.tables);
    OneProcess one = MakeOne(shape.tables);
    const std::vector<Batch> batches = RandomBatches(9, ranks, shape, modes);
    const Gradients gradients = RandomGradients(9, batches);
    group.Forward(batches);
    const GradientsById expected = one.Step(executor_, batches, gradients);
    const GradientsById actual = group.Backward(gradients, format);
    ExpectAllOk(group);
    for (size_t t = 0; t < expected.size(); ++t) {
      ASSERT_EQ(actual[t].size(), expected[t].size()) << t;
      for (const auto& [key, sum] : expected[t]) ExpectNear(actual[t].at(key), sum, tolerance);
    }
  }
}

// A rank that only reads inserts no rows on any rank, and reads the rows that the others have trained.
TEST_P(ShardedPlacementTest, SomeRanksTrainAndSomeOnlyRead) {
  const int ranks = GetParam().ranks;
  const std::vector<ExchangeMode> modes(2, GetParam().mode);
  ShardedGroup group = MakeGroup(2);
  OneProcess one = MakeOne(2);
  std::vector<Batch> batches(ranks);
  std::vector<Batch> trained(ranks);
  Gradients gradients(ranks);
  for (int r = 0; r < ranks; ++r) {
    for (int t = 0; t < 2; ++t) {
      const bool reads = r == 1;
      const std::vector<int64_t> ids = {r, r + 1, reads ? 77 : 2};
      batches[r].Add(t, ids, {0, 2, 3});
      trained[r].Add(t, reads ? std::vector<int64_t>() : ids,
                     reads ? std::vector<int64_t>{0} : std::vector<int64_t>{0, 2, 3});
      gradients[r].emplace_back(reads ? 0 : 2 * kDims[t], 0.5f);
    }
    batches[r].training = r != 1;
  }
  const GradientsById expected = one.Step(executor_, trained, gradients);
  group.Forward(batches);
  ExpectAllOk(group);
  const GradientsById actual = group.Backward(gradients);
  ExpectAllOk(group);
  for (int t = 0; t < 2; ++t) {
    ASSERT_EQ(actual[t].size(), expected[t].size());
    for (const auto& [key, sum] : expected[t]) ExpectNear(actual[t].at(key), sum, 1e-5f);
    for (int r = 0; r < ranks; ++r) EXPECT_EQ(Records(group.rank(r).tables[t].get()).count(77), 0u);
  }
}

// The counts of all ranks add up to those of one process.
TEST_P(ShardedPlacementTest, LookupsAreCountedOnce) {
  const int ranks = GetParam().ranks;
  const Shape shape = {3, 3, 25, false};
  const std::vector<ExchangeMode> modes(shape.tables, GetParam().mode);
  ShardedGroup group = MakeGroup(shape.tables);
  OneProcess one = MakeOne(shape.tables);
  const std::vector<Batch> batches = RandomBatches(4, ranks, shape, modes);
  const Gradients gradients = RandomGradients(4, batches);
  group.Forward(batches);
  one.Step(executor_, batches, gradients);
  ExpectAllOk(group);
  for (int t = 0; t < shape.tables; ++t) {
    int64_t ids = 0;
    int64_t distinct = 0;
    int64_t admitted = 0;
    int64_t rows = 0;
    for (int r = 0; r < ranks; ++r) {
      const Table& table = *group.rank(r).tables[t];
      ids += table.lookup_counts().ids;
      distinct += table.lookup_counts().distinct_ids;
      admitted += table.lookup_counts().admitted_ids;
      if (table.represents_rows()) rows += table.size();
    }
    const LookupCounts& counts = one.tables[t]->lookup_counts();
    EXPECT_EQ(ids, counts.ids);
    EXPECT_EQ(distinct, counts.distinct_ids);
    EXPECT_EQ(admitted, counts.admitted_ids);
    EXPECT_EQ(rows, one.tables[t]->size());
  }
}

// If a table without hashing does not have a key, the error on every rank names the table and the key.
TEST_P(ShardedPlacementTest, AKeyBeyondTheRowsFailsOnEveryRank) {
  const int ranks = GetParam().ranks;
  for (const int64_t key : {kStaticKeys, kStaticKeys + 1, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    ShardedGroup group = MakeGroup(3);
    std::vector<Batch> batches(ranks);
    for (int r = 0; r < ranks; ++r) {
      batches[r].Add(2, {r == 0 ? key : 1}, {0, 1});
      for (int t = 0; t < 2; ++t) batches[r].Add(t, {5}, {0, 1});
    }
    group.Forward(batches);
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(group.rank(r).status.code(), StatusCode::kInvalidArgument);
      const std::string& message = group.rank(r).status.message();
      EXPECT_NE(message.find("'table2'"), std::string::npos) << message;
      EXPECT_NE(message.find(std::to_string(key)), std::string::npos) << message;
      EXPECT_NE(message.find("[0, 600)"), std::string::npos) << message;
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const PlacementKind kind :
       {PlacementKind::kByKey, PlacementKind::kOneRank, PlacementKind::kAllRanks, PlacementKind::kRanges}) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const ExchangeMode mode : {ExchangeMode::kRows, ExchangeMode::kSums}) {
        cases.push_back({kind, ranks, mode});
      }
    }
  }
  return cases;
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const char* const kinds[] = {"ByKey", "OneRank", "AllRanks", "Ranges"};
  return std::string(kinds[static_cast<int>(info.param.kind)]) + std::to_string(info.param.ranks) +
         (info.param.mode == ExchangeMode::kRows ? "Rows" : "Sums");
}

INSTANTIATE_TEST_SUITE_P(Placements, ShardedPlacementTest, testing::ValuesIn(Cases()), CaseName);

// Replicas admit and evict the same ids in the same steps as one process.
TEST(ReplicasTest, AdmissionAndEvictionEqualOneProcess) {
  const auto make = [](int /*t*/, int rank, int ranks) {
    TableOptions options;
    options.name = "table";
    options.dim = 2;
    options.rank = rank;
    options.ranks = ranks;
    options.placement = Placement::AllRanks();
    options.capacity = 40;
    options.on_full = OnFull::kEvictLfu;
    options.admission.kind = Admission::Kind::kCounter;
    options.admission.filter_freq = 3;
    InlineExecutor executor;
    return std::move(Table::Create(executor, options).value());
  };
  const auto known = [](const Table& table) {
    std::map<int64_t, int64_t> known;
    for (const int64_t row : table.Rows()) known[table.key(row)] = table.frequency(row);
    for (int64_t place = 0; place < table.waiting()->limit(); ++place) {
      if (table.waiting()->in_use(place)) known[table.waiting()->id(place)] = -table.waiting()->count(place);
    }
    return known;
  };
  ThreadPool executor(3, /*min_block_ns=*/0);
  for (const ExchangeMode mode : {ExchangeMode::kRows, ExchangeMode::kSums}) {
    ShardedGroup group(3, {mode}, executor, make);
    OneProcess one;
    one.tables.push_back(make(0, 0, 1));
    std::mt19937_64 random(8);
    for (int step = 0; step < 30; ++step) {
      std::vector<Batch> batches(3);
      Gradients gradients(3);
      for (int r = 0; r < 3; ++r) {
        std::vector<int64_t> ids;
        for (int i = 0; i < 20; ++i) ids.push_back(static_cast<int64_t>(random() % (1 + random() % 150)));
        batches[r].Add(0, ids, {0, 7, 7, 20});
        gradients[r].emplace_back(6, 1.0f);
      }
      group.Forward(batches);
      one.Step(executor, batches, gradients);
      ASSERT_TRUE(one.status.ok()) << one.status.message();
      for (int r = 0; r < 3; ++r) {
        ASSERT_TRUE(group.rank(r).status.ok()) << group.rank(r).status.message();
        ASSERT_EQ(known(*group.rank(r).tables[0]), known(*one.tables[0]))
            << "step " << step << ", rank " << r;
      }
    }
    EXPECT_EQ(one.tables[0]->size(), 40) << "the table was full";
  }
}

TEST(ReplicasTest, AnswersStayOnTheRank) {
  InlineExecutor executor;
  for (const bool training : {false, true}) {
    ShardedGroup group(3, {ExchangeMode::kRows}, executor, [](int t, int rank, int ranks) {
      return MakePlaced(PlacementKind::kAllRanks, t, rank, ranks);
    });
    std::vector<Batch> batches(3);
    for (Batch& batch : batches) {
      batch.Add(0, {1, 2, 3}, {0, 1, 3});
      batch.training = training;
    }
    group.Forward(batches);
    for (int r = 0; r < 3; ++r) {
      ASSERT_TRUE(group.rank(r).status.ok()) << group.rank(r).status.message();
      for (int to = 0; to < 3; ++to) {
        EXPECT_EQ(group.rank(r).outbox.sizes[to] > kHeaderWords, to == r) << r << " to " << to;
      }
    }
  }
}

TEST(PlacementAgreementTest, RanksWithOtherPlacementsRefuseEachOther) {
  InlineExecutor executor;
  ShardedGroup group(2, {ExchangeMode::kRows}, executor, [](int t, int rank, int ranks) {
    return MakePlaced(rank == 0 ? PlacementKind::kOneRank : PlacementKind::kByKey, t, rank, ranks);
  });
  std::vector<Batch> batches(2);
  for (Batch& batch : batches) batch.Add(0, {1}, {0, 1});
  group.Forward(batches);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(group.rank(r).status.code(), StatusCode::kFailedPrecondition);
    const std::string& message = group.rank(r).status.message();
    EXPECT_NE(message.find("'table0'"), std::string::npos) << message;
    EXPECT_NE(message.find("one_rank:1"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace sok::sharded_placement
