// LookupCounts over ranks: the sums equal the counts of one process, and bytes_sent follows from the layout
// of the messages.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "cc/base/thread_pool.h"
#include "cc/cpu/sharded/testing/sharded_step.h"

namespace sok::sharded_counts {
namespace {

constexpr int64_t kDims[] = {4, 1, 7};
constexpr int kTables = 3;

std::unique_ptr<Table> MakeTable(int t, int rank, int ranks) {
  TableOptions options;
  options.name = "table" + std::to_string(t);
  options.dim = kDims[t];
  options.rank = rank;
  options.ranks = ranks;
  options.initializer = {InitializerKind::kUniform, -1.0f, 1.0f, static_cast<uint64_t>(t)};
  if (t == 1) {
    options.admission.kind = Admission::Kind::kCounter;
    options.admission.filter_freq = 4;
  }
  InlineExecutor executor;
  return std::move(Table::Create(executor, options).value());
}

Batch RandomBatch(uint64_t seed, int64_t bags) {
  std::mt19937_64 random(seed);
  Batch batch;
  batch.ids.resize(kTables);
  for (int t = 0; t < kTables; ++t) {
    std::vector<int64_t> ids;
    std::vector<int64_t> offsets = {0};
    for (int64_t bag = 0; bag < bags; ++bag) {
      for (uint64_t i = random() % 5; i > 0; --i) {
        const int64_t id = static_cast<int64_t>(random() % (1 + random() % 100));
        ids.push_back(random() % 2 == 0 ? INT64_MIN + id : id << 33);
      }
      offsets.push_back(static_cast<int64_t>(ids.size()));
    }
    batch.Add(t, ids, offsets);
  }
  return batch;
}

std::vector<std::vector<float>> Zeros(const Batch& batch) {
  std::vector<std::vector<float>> gradients;
  for (const LookupBags& lookup : batch.lookups) {
    gradients.emplace_back(lookup.num_bags() * kDims[lookup.table]);
  }
  return gradients;
}

// The bytes that one table's lookup on `rank` sends over the network, in both directions, computed from the
// layout of the messages.
int64_t BytesOf(const Batch& batch, int t, int rank, int ranks, ExchangeMode mode, bool counts) {
  int64_t bytes = 0;
  for (int owner = 0; owner < ranks; ++owner) {
    if (owner == rank) continue;
    int64_t occurrences = 0;
    std::set<int64_t> distinct;
    std::set<int64_t> bags;
    for (int64_t bag = 0; bag < batch.lookups[t].num_bags(); ++bag) {
      for (int64_t i = batch.lookups[t].offsets[bag]; i < batch.lookups[t].offsets[bag + 1]; ++i) {
        const int64_t id = batch.ids[t][i];
        if (static_cast<uint64_t>(id) % ranks != static_cast<uint64_t>(owner)) continue;
        ++occurrences;
        distinct.insert(id);
        bags.insert(bag);
      }
    }
    const bool rows = mode == ExchangeMode::kRows;
    const int64_t ids = rows ? static_cast<int64_t>(distinct.size()) : occurrences;
    const int64_t answers = static_cast<int64_t>(rows ? distinct.size() : bags.size());
    const int64_t numbers = rows ? (counts ? ids : 0) : answers;
    bytes += 8 * (4 + ids + (numbers + 1) / 2) + 2 * answers * kDims[t] * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

struct Case {
  int ranks;
  ExchangeMode mode;
};

class ShardedCountsTest : public testing::TestWithParam<Case> {};

TEST_P(ShardedCountsTest, SumsOverRanksEqualOneProcess) {
  const auto [ranks, mode] = GetParam();
  ThreadPool executor(3, /*min_block_ns=*/0);
  ShardedGroup group(ranks, std::vector<ExchangeMode>(kTables, mode), executor, MakeTable);
  OneProcess one;
  for (int t = 0; t < kTables; ++t) one.tables.push_back(MakeTable(t, 0, 1));
  std::vector<int64_t> bytes(kTables);
  std::vector<int64_t> ids(kTables);
  for (uint64_t step = 0; step < 6; ++step) {
    const bool training = step != 3;  // read-only lookups are not counted
    std::vector<Batch> batches;
    std::vector<std::vector<std::vector<float>>> gradients;
    for (int r = 0; r < ranks; ++r) {
      batches.push_back(RandomBatch(100 * step + r, r == 1 ? 0 : 40));
      batches.back().training = training;
      gradients.push_back(Zeros(batches.back()));
      for (int t = 0; training && t < kTables; ++t) {
        ids[t] += static_cast<int64_t>(batches[r].ids[t].size());
        bytes[t] += BytesOf(batches[r], t, r, ranks, mode, t == 1);
      }
    }
    one.Step(executor, batches, gradients);
    group.Forward(batches);
    group.Backward(gradients);
    for (int t = 0; t < kTables; ++t) {
      const LookupCounts& expected = one.tables[t]->lookup_counts();
      LookupCounts sums;
      for (int r = 0; r < ranks; ++r) {
        const LookupCounts& counts = group.rank(r).tables[t]->lookup_counts();
        sums.ids += counts.ids;
        sums.distinct_ids += counts.distinct_ids;
        sums.admitted_ids += counts.admitted_ids;
        sums.filtered_ids += counts.filtered_ids;
        sums.bytes_sent += counts.bytes_sent;
      }
      ASSERT_EQ(expected.ids, ids[t]);
      ASSERT_EQ(expected.bytes_sent, 0);
      ASSERT_EQ(sums.ids, expected.ids) << "table " << t;
      ASSERT_EQ(sums.distinct_ids, expected.distinct_ids) << "table " << t;
      ASSERT_EQ(sums.admitted_ids, expected.admitted_ids) << "table " << t;
      ASSERT_EQ(sums.filtered_ids, expected.filtered_ids) << "table " << t;
      ASSERT_EQ(sums.bytes_sent, bytes[t]) << "table " << t;
      ASSERT_EQ(expected.admitted_ids, one.tables[t]->size());
    }
  }
  EXPECT_GT(one.tables[1]->lookup_counts().filtered_ids, 0);
  EXPECT_EQ(one.tables[0]->lookup_counts().filtered_ids, 0);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const ExchangeMode mode : {ExchangeMode::kRows, ExchangeMode::kSums}) cases.push_back({ranks, mode});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedCountsTest, testing::ValuesIn(Cases()), [](const auto& info) {
  return std::to_string(info.param.ranks) + (info.param.mode == ExchangeMode::kRows ? "Rows" : "Sums");
});

}  // namespace
}  // namespace sok::sharded_counts
