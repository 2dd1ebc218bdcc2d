// Full tables that evict, compared with slow references.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/table/testing/test_table.h"

namespace sok {
namespace {

TableOptions EvictingOptions(OnFull on_full, int64_t capacity, int64_t filter_freq = 0) {
  TableOptions options = TestOptions(2, capacity);
  options.on_full = on_full;
  if (filter_freq > 0) {
    options.admission.kind = Admission::Kind::kCounter;
    options.admission.filter_freq = filter_freq;
  }
  return options;
}

struct KnownRow {
  int64_t frequency = 0;
  int64_t last_used = 0;
};

// Keeps every row in a map, and sorts all rows when some must be evicted.
struct ReferenceTable {
  TableOptions options;
  std::map<int64_t, KnownRow> rows;
  std::map<int64_t, int64_t> waiting;
  int64_t uses = 0;
  int64_t evictions = 0;

  // Returns false and changes nothing if the ids of the lookup alone do not fit.
  bool Lookup(const std::vector<int64_t>& ids, const std::vector<int64_t>& counts) {
    std::set<int64_t> with_rows;
    std::map<int64_t, int64_t> totals;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto waits = waiting.find(ids[i]);
      totals[ids[i]] = counts[i] + (waits == waiting.end() ? 0 : waits->second);
      const bool has_row = rows.count(ids[i]) == 1;
      if (has_row || totals[ids[i]] >= options.admission.filter_freq) with_rows.insert(ids[i]);
    }
    if (static_cast<int64_t>(with_rows.size()) > options.capacity) return false;
    std::vector<std::tuple<int64_t, int64_t, int64_t>> others;
    for (const auto& [id, row] : rows) {
      if (with_rows.count(id) == 1) continue;
      const int64_t first = options.on_full == OnFull::kEvictLfu ? row.frequency : 0;
      others.emplace_back(first, row.last_used, id);
    }
    std::sort(others.begin(), others.end());
    const int64_t surplus = static_cast<int64_t>(others.size() + with_rows.size()) - options.capacity;
    for (int64_t i = 0; i < surplus; ++i) rows.erase(std::get<2>(others[i]));
    evictions += std::max<int64_t>(surplus, 0);
    ++uses;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (with_rows.count(ids[i]) == 0) {
        waiting[ids[i]] = totals[ids[i]];
        continue;
      }
      KnownRow& row = rows[ids[i]];
      row.frequency += waiting.count(ids[i]) == 1 ? totals[ids[i]] : counts[i];
      row.last_used = uses;
      waiting.erase(ids[i]);
    }
    return true;
  }
};

void ExpectEqual(const Table& table, const ReferenceTable& expected) {
  ASSERT_EQ(table.size(), static_cast<int64_t>(expected.rows.size()));
  ASSERT_LE(table.row_limit(), table.options().capacity) << "rows are reused";
  for (const int64_t row : table.Rows()) {
    const auto known = expected.rows.find(table.key(row));
    ASSERT_NE(known, expected.rows.end()) << "key " << table.key(row);
    ASSERT_EQ(table.last_used(row), known->second.last_used);
    if (table.has_frequency()) {
      ASSERT_EQ(table.frequency(row), known->second.frequency);
    }
  }
}

struct Policy {
  OnFull on_full;
  int64_t filter_freq;
};

class TableCapacityTest : public testing::TestWithParam<Policy> {};

TEST_P(TableCapacityTest, RandomStreamsEqualTheReference) {
  int64_t evictions = 0;
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    std::mt19937_64 random(seed);
    const int64_t capacity = 1 + static_cast<int64_t>(random() % 60);
    auto table = MakeTestTable(EvictingOptions(GetParam().on_full, capacity, GetParam().filter_freq));
    ReferenceTable expected{table->options(), {}, {}};
    std::vector<int64_t> pool = DistinctIds(100, seed);
    for (const int64_t id : HostileIds()) pool.push_back(id);
    for (int round = 0; round < 300; ++round) {
      // From no ids to more ids than the capacity; some ids occur far more often than others.
      std::shuffle(pool.begin(), pool.begin() + pool.size() / 2, random);
      const uint64_t most = random() % 7 == 0 ? capacity + 3 : 1 + capacity / 3;
      std::set<int64_t> distinct;
      for (uint64_t i = random() % (most + 1); i > 0; --i)
        distinct.insert(pool[random() % (1 + random() % pool.size())]);
      std::vector<int64_t> ids(distinct.begin(), distinct.end());
      std::shuffle(ids.begin(), ids.end(), random);
      std::vector<int64_t> counts;
      for (size_t i = 0; i < ids.size(); ++i) counts.push_back(1 + static_cast<int64_t>(random() % 4));
      std::vector<int64_t> rows(ids.size());
      InlineExecutor executor;
      std::vector<int64_t> read_default;
      const Status status = table->FindForTraining(executor, ids, counts, Span<int64_t>(rows), &read_default);
      ASSERT_EQ(status.ok(), expected.Lookup(ids, counts)) << status.message();
      if (!status.ok()) {
        EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
      }
      if (random() % 10 == 0) {
        const std::vector<int64_t> keys = {pool[random() % pool.size()], pool[random() % pool.size()]};
        int64_t erased;
        ASSERT_TRUE(table->Erase({executor}, keys, &erased).ok());
        for (const int64_t key : keys) {
          expected.rows.erase(key);
          expected.waiting.erase(key);
        }
      }
      if (random() % 10 == 0 && table->size() < capacity) {
        const int64_t key = pool[random() % pool.size()];
        RowsOf(table.get(), {key});
        expected.waiting.erase(key);
        // FindOrMake neither counts nor uses rows.
        if (expected.rows.count(key) == 0) expected.rows[key].last_used = expected.uses;
      }
      if (table->waiting() != nullptr) {
        ASSERT_EQ(table->waiting()->size(), static_cast<int64_t>(expected.waiting.size()));
      }
      if (random() % 30 == 0 && table->size() > 0) {
        // As a restore does.
        const int64_t row = table->Rows()[0];
        table->set_last_used(row, 0);
        expected.rows[table->key(row)].last_used = 0;
      }
      ASSERT_NO_FATAL_FAILURE(ExpectEqual(*table, expected)) << "round " << round;
    }
    evictions += expected.evictions;
  }
  EXPECT_GT(evictions, 1000);
}

INSTANTIATE_TEST_SUITE_P(Policies, TableCapacityTest,
                         testing::Values(Policy{OnFull::kEvictLru, 0}, Policy{OnFull::kEvictLfu, 0},
                                         Policy{OnFull::kEvictLru, 3}, Policy{OnFull::kEvictLfu, 3}),
                         [](const auto& info) {
                           return std::string(NameOf(info.param.on_full)) + "_from_" +
                                  std::to_string(info.param.filter_freq);
                         });

struct Training {
  std::string optimizer;
  std::vector<float> hyper;
};

// A table that never evicts. Each time a key is inserted into the table under test, it gets a new key (its
// alias) in this table.
struct Twin {
  std::unique_ptr<Table> table;
  std::map<int64_t, int64_t> alias;  // of the keys in the table under test
  int64_t next = 0;

  // Looks up the aliases of `ids` in the twin. `live` are the keys of the table under test after its lookup.
  std::vector<int64_t> Lookup(const std::vector<int64_t>& ids, const std::vector<int64_t>& live) {
    const std::set<int64_t> keys(live.begin(), live.end());
    for (auto it = alias.begin(); it != alias.end();)
      it = keys.count(it->first) == 0 ? alias.erase(it) : ++it;
    std::vector<int64_t> aliases;
    for (const int64_t id : ids) {
      if (alias.count(id) == 0) alias[id] = next++;
      aliases.push_back(alias[id]);
    }
    return RowsOf(table.get(), aliases);
  }
};

class EvictedTrainingTest : public testing::TestWithParam<Training> {
 protected:
  // Trains both tables. The gradient of a lookup comes after the next lookup, which may have evicted its
  // rows. Returns the weights and slots of all keys at the end.
  static std::map<int64_t, std::vector<float>> Run(Executor& executor, OnFull on_full, Twin* twin) {
    TableOptions options = EvictingOptions(on_full, 12);
    options.initializer = {InitializerKind::kConstant, 0.5f, 0.0f, 0};
    auto table = MakeTestTable(options);
    options.on_full = OnFull::kError;
    options.capacity = 0;
    twin->table = MakeTestTable(options);
    std::mt19937_64 random(11);
    std::vector<int64_t> late;
    std::vector<std::pair<int64_t, int64_t>> late_in_twin;  // key and row
    int64_t dropped = 0;
    for (int round = 0; round < 200; ++round) {
      std::set<int64_t> distinct;
      for (int i = 0; i < 8; ++i) distinct.insert(static_cast<int64_t>(random() % (1 + random() % 40)));
      const std::vector<int64_t> ids(distinct.begin(), distinct.end());
      const std::vector<int64_t> rows = TrainingLookup(table.get(), ids, std::vector<int64_t>(ids.size(), 1));
      const std::map<int64_t, int64_t> before = twin->alias;
      const std::vector<int64_t> twin_rows = twin->Lookup(ids, table->Keys());
      std::vector<float> grads;
      for (size_t i = 0; i < 2 * late.size(); ++i) grads.push_back(static_cast<float>(random() % 9) - 4.0f);
      std::vector<int64_t> kept_rows;
      std::vector<float> kept_grads;
      for (size_t i = 0; i < late_in_twin.size(); ++i) {
        const auto& [key, row] = late_in_twin[i];
        const auto now = twin->alias.find(key);
        if (now == twin->alias.end() || now->second != before.at(key)) {
          ++dropped;
          continue;
        }
        kept_rows.push_back(row);
        kept_grads.insert(kept_grads.end(), grads.begin() + 2 * i, grads.begin() + 2 * i + 2);
      }
      const Training& training = GetParam();
      EXPECT_TRUE(
          table->ApplyGradients({executor}, training.optimizer, training.hyper, late, grads.data(), true)
              .ok());
      EXPECT_TRUE(twin->table
                      ->ApplyGradients({executor}, training.optimizer, training.hyper, kept_rows,
                                       kept_grads.data(), true)
                      .ok());
      late = rows;
      late_in_twin.clear();
      for (size_t i = 0; i < ids.size(); ++i) late_in_twin.emplace_back(ids[i], twin_rows[i]);
    }
    EXPECT_GT(dropped, 10);
    EXPECT_TRUE(table->BringUpToDate(executor, table->Rows()).ok());
    EXPECT_TRUE(twin->table->BringUpToDate(executor, twin->table->Rows()).ok());
    std::map<int64_t, std::vector<float>> result;
    for (const int64_t row : table->Rows()) {
      result[table->key(row)].assign(table->weights(row), table->weights(row) + 2 + table->slot_width());
    }
    return result;
  }
};

TEST_P(EvictedTrainingTest, EqualsATableThatNeverReusesARow) {
  for (const OnFull on_full : {OnFull::kEvictLru, OnFull::kEvictLfu}) {
    std::map<int64_t, std::vector<float>> first;
    for (const int threads : {1, 2, 4}) {
      ThreadPool executor(threads, /*min_block_ns=*/0);
      Twin twin;
      const auto actual = Run(executor, on_full, &twin);
      ASSERT_EQ(actual.size(), 12u);
      for (const auto& [key, record] : actual) {
        const int64_t row = RowsOf(twin.table.get(), {twin.alias.at(key)})[0];
        const float* expected = twin.table->weights(row);
        ASSERT_EQ(record, std::vector<float>(expected, expected + record.size())) << "key " << key;
      }
      if (first.empty()) first = actual;
      ASSERT_EQ(actual, first) << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EvictedTrainingTest,
                         testing::Values(Training{"sgd", {0.1f}}, Training{"adagrad", {0.1f, 0.1f, 0.0f}},
                                         Training{"lazy_adam", {0.01f, 0.9f, 0.999f, 1e-8f}},
                                         Training{"adam", {0.01f, 0.9f, 0.999f, 1e-8f}}),
                         [](const auto& info) { return info.param.optimizer; });

}  // namespace
}  // namespace sok
