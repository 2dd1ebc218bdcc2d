// Any number of ranks admit the same ids in the same steps as one process.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "cc/base/thread_pool.h"
#include "cc/cpu/sharded/testing/sharded_step.h"

namespace sok::sharded_admission {
namespace {

constexpr int64_t kDim = 3;

std::unique_ptr<Table> MakeTable(int t, int rank, int ranks) {
  TableOptions options;
  options.name = "table" + std::to_string(t);
  options.dim = kDim;
  options.rank = rank;
  options.ranks = ranks;
  options.initializer = {InitializerKind::kUniform, -1.0f, 1.0f, static_cast<uint64_t>(t)};
  // One table counts exactly, one in a Bloom filter that is large enough, by DeepRec's older rule, and one
  // admits all ids, which share its initial rows.
  if (t < 2) {
    options.admission.kind = t == 0 ? Admission::Kind::kCounter : Admission::Kind::kBloom;
    options.admission.filter_freq = 5;
    options.admission.default_value = 0.25f;
    options.admission.max_element_size = 2000;
    options.admission.false_positive_probability = 1e-9;
    options.admission.counter_bits = 16;
    options.admission.before_lookup = t == 1;
  } else {
    options.initializer.rows = 16;
  }
  InlineExecutor executor;
  return std::move(Table::Create(executor, options).value());
}

int64_t RandomId(std::mt19937_64& random) {
  const int64_t id = static_cast<int64_t>(random() % (1 + random() % 200));
  return random() % 3 == 0 ? INT64_MIN + id : random() % 2 == 0 ? -id : id << 33;
}

Batch RandomBatch(uint64_t seed, bool empty) {
  std::mt19937_64 random(seed);
  Batch batch;
  batch.ids.resize(3);
  for (int t = 0; t < 3; ++t) {
    std::vector<int64_t> ids;
    std::vector<int64_t> offsets = {0};
    for (int bag = 0; bag < (empty ? 0 : 30); ++bag) {
      for (uint64_t i = random() % 5; i > 0; --i) ids.push_back(RandomId(random));
      offsets.push_back(static_cast<int64_t>(ids.size()));
    }
    batch.Add(t, ids, offsets, static_cast<Combiner>(t));
  }
  return batch;
}

std::vector<std::vector<float>> GradientsOf(const Batch& batch, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<float>> gradients;
  for (const LookupBags& lookup : batch.lookups) {
    gradients.emplace_back(lookup.num_bags() * kDim);
    for (float& value : gradients.back()) value = static_cast<float>(static_cast<int>(random() % 17) - 8) / 4;
  }
  return gradients;
}

void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-4f) << i;
}

// Each key of a table with its frequency, or with minus its count if it waits for admission.
std::map<int64_t, int64_t> Known(const Table& table) {
  std::map<int64_t, int64_t> known;
  for (const int64_t row : table.Rows()) {
    known[table.key(row)] = table.has_frequency() ? table.frequency(row) : 1;
  }
  const WaitingIds* waiting = table.waiting();
  for (int64_t place = 0; waiting != nullptr && place < waiting->limit(); ++place) {
    if (waiting->in_use(place)) known[waiting->id(place)] = -waiting->count(place);
  }
  return known;
}

struct Case {
  int ranks;
  ExchangeMode mode;
  int threads;
};

class ShardedAdmissionTest : public testing::TestWithParam<Case> {};

TEST_P(ShardedAdmissionTest, EqualsOneProcess) {
  const int ranks = GetParam().ranks;
  ThreadPool executor(GetParam().threads, /*min_block_ns=*/0);
  const std::vector<ExchangeMode> modes(3, GetParam().mode);
  ShardedGroup group(ranks, modes, executor, MakeTable);
  OneProcess one;
  for (int t = 0; t < 3; ++t) one.tables.push_back(MakeTable(t, 0, 1));
  for (uint64_t step = 0; step < 8; ++step) {
    std::vector<Batch> batches;
    std::vector<std::vector<std::vector<float>>> gradients;
    for (int r = 0; r < ranks; ++r) {
      batches.push_back(RandomBatch(100 * step + r, r == 1));
      gradients.push_back(GradientsOf(batches.back(), 100 * step + r));
    }
    const bool training = step != 5;
    for (Batch& batch : batches) batch.training = training;
    group.Forward(batches);
    const GradientsById expected = one.Step(executor, batches, gradients);
    ASSERT_TRUE(one.status.ok()) << one.status.message();
    for (int r = 0; r < ranks; ++r) {
      ASSERT_TRUE(group.rank(r).status.ok()) << group.rank(r).status.message();
      for (int l = 0; l < 3; ++l) {
        ExpectNear(group.rank(r).outputs.values[l], one.outputs[r].values[l]);
      }
    }
    const GradientsById actual = group.Backward(gradients);
    for (int t = 0; t < 3; ++t) {
      ASSERT_EQ(actual[t].size(), expected[t].size()) << "table " << t;
      for (const auto& [id, gradient] : expected[t]) ExpectNear(actual[t].at(id), gradient);
      std::map<int64_t, int64_t> known;
      for (int r = 0; r < ranks; ++r) {
        for (const auto& [id, count] : Known(*group.rank(r).tables[t])) known[id] = count;
      }
      ASSERT_EQ(known, Known(*one.tables[t])) << "table " << t << ", step " << step;
    }
  }
  // The test had both admitted and waiting ids.
  EXPECT_GT(one.tables[0]->size(), 0);
  EXPECT_GT(one.tables[0]->waiting()->size(), 0);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const ExchangeMode mode : {ExchangeMode::kRows, ExchangeMode::kSums}) {
      for (const int threads : {1, 3}) cases.push_back({ranks, mode, threads});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedAdmissionTest, testing::ValuesIn(Cases()), [](const auto& info) {
  return std::to_string(info.param.ranks) + (info.param.mode == ExchangeMode::kRows ? "Rows" : "Sums") +
         std::to_string(info.param.threads) + "Threads";
});

// Below filter_freq an id reads as the default value and has no gradient. Occurrences on all ranks are
// counted.
TEST(ShardedAdmission, OccurrencesOfAllRanksCountInOneStep) {
  InlineExecutor executor;
  for (const ExchangeMode mode : {ExchangeMode::kRows, ExchangeMode::kSums}) {
    ShardedGroup group(2, {mode}, executor, MakeTable);
    std::vector<Batch> batches(2);
    batches[0].Add(0, {7, 7, 9, 7}, {0, 3, 4});
    batches[1].Add(0, {7, 9, 7}, {0, 3});
    group.Forward(batches);
    std::vector<float> row(kDim);
    group.rank(1).tables[0]->InitialRow(7, Span<float>(row));
    for (int r = 0; r < 2; ++r) ASSERT_TRUE(group.rank(r).status.ok());
    const std::vector<float>& first = group.rank(0).outputs.values[0];
    const std::vector<float>& second = group.rank(1).outputs.values[0];
    for (int64_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(first[d], 2 * row[d] + 0.25f, 1e-6);
      EXPECT_NEAR(first[kDim + d], row[d], 1e-6);
      EXPECT_NEAR(second[d], 2 * row[d] + 0.25f, 1e-6);
    }
    const GradientsById gradients = group.Backward({{{1, 1, 1, 2, 2, 2}}, {{4, 4, 4}}});
    EXPECT_EQ(gradients, (GradientsById{{{7, {12, 12, 12}}}}));
  }
}

}  // namespace
}  // namespace sok::sharded_admission
