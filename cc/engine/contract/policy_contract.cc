// Admission and eviction against simple rules in maps: admission filters, full tables, eviction at a save.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/lookup_reference.h"
#include "cc/engine/contract/suites.h"
#include "cc/engine/held_table.h"

namespace sok {
namespace {

SOK_CONTRACT_SUITE(AdmissionContract);
SOK_CONTRACT_SUITE(CapacityContract);
SOK_CONTRACT_SUITE(SaveEvictionContract);

constexpr float kNotAdmitted = 77.0f;

// A table of one column. Every training lookup adds 1 to each row that it trains, so the value of a key tells
// how often its row was trained since its insertion.
class CountingTable {
 public:
  CountingTable(const EngineCase& engine, const TableOptions& options)
      : group_(engine, executor_, {options}), options_(options) {}

  // Looks up ids[i] counts[i] times, and trains the rows.
  Status Train(const std::vector<int64_t>& ids, const std::vector<int64_t>& counts) {
    std::vector<std::vector<int64_t>> bags;
    std::vector<float> gradients;
    for (size_t i = 0; i < ids.size(); ++i) {
      for (int64_t k = 0; k < counts[i]; ++k) {
        bags.push_back({ids[i]});
        // Only the first occurrence has a gradient.
        gradients.push_back(k == 0 ? -1.0f : 0.0f);
      }
    }
    SOK_RETURN_IF_ERROR(group_.Lookup({SumOf(0, bags)}));
    read_.clear();
    size_t bag = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      read_[ids[i]] = group_.outputs()[0][bag];
      bag += static_cast<size_t>(counts[i]);
    }
    return group_.BackwardAndApply({gradients}, "sgd", {1.0f});
  }
  // What the last training lookup read for each key.
  const std::map<int64_t, float>& read() const { return read_; }
  ContractGroup& group() { return group_; }
  std::map<int64_t, float> Read(const std::vector<int64_t>& ids) {
    std::map<int64_t, float> values;
    for (const auto& [key, row] : group_.Rows(0, ids)) values[key] = row[0];
    return values;
  }
  float Initial(int64_t key) const { return ReferenceInitialRow(options_, key)[0]; }
  Status Erase(const std::vector<int64_t>& keys) {
    int64_t erased = 0;
    return group_.Erase(0, keys, &erased);
  }
  Status SetWaiting(const WaitingPiece& piece) {
    SOK_ASSIGN_OR_RETURN(const auto held, group_.table(0).Hold(group_.context()));
    return held->SetWaiting(piece);
  }
  // The eviction of a save. Returns those of `ids` that still have rows.
  std::set<int64_t> EvictForSave(const std::vector<int64_t>& ids) {
    {
      const auto held = group_.table(0).Hold(group_.context());
      EXPECT_TRUE(held.ok());
      EXPECT_TRUE(held.value()->EvictForSave().ok());
    }
    std::set<int64_t> left;
    for (const auto& [key, value] : Read(ids)) {
      if (value != Initial(key)) left.insert(key);
    }
    return left;
  }
  EngineTable& table() { return group_.table(0); }
  int64_t trained_rows() const { return group_.plan().trained_rows(0); }

 private:
  InlineExecutor executor_;
  ContractGroup group_;
  TableOptions options_;
  std::map<int64_t, float> read_;
};

// The result of `times` additions of 1, with the rounding of each, as in CountingTable.
float AddOnes(float value, int64_t times) {
  for (int64_t i = 0; i < times; ++i) value += 1.0f;
  return value;
}

// Whether the slowest engines are tested with a filter, too: a counter and the narrowest and widest in Bloom
// filters.
bool IsForSlowest(const Admission& filter) {
  if (filter.kind == Admission::Kind::kCounter) return filter.filter_freq == 7;
  return filter.counter_bits == 8 || filter.counter_bits == 64;
}

std::vector<TableOptions> Filters() {
  std::vector<TableOptions> filters;
  for (const int64_t filter_freq : {0, 1, 2, 7, 1000}) {
    TableOptions options = ContractOptions("counted", 1);
    options.admission.kind = Admission::Kind::kCounter;
    options.admission.filter_freq = filter_freq;
    options.admission.default_value = kNotAdmitted;
    filters.push_back(options);
  }
  for (const int bits : {8, 16, 32, 64}) {
    TableOptions options = ContractOptions("bloom", 1);
    options.admission.kind = Admission::Kind::kBloom;
    options.admission.filter_freq = 5;
    options.admission.default_value = kNotAdmitted;
    options.admission.max_element_size = 1000;
    options.admission.false_positive_probability = 1e-9;
    options.admission.counter_bits = bits;
    filters.push_back(options);
  }
  // The same with DeepRec's older rule: one counter, the other in a Bloom filter.
  for (const size_t which : {size_t{0}, size_t{1}, size_t{3}, size_t{5}}) {
    TableOptions options = filters[which];
    options.admission.before_lookup = true;
    filters.push_back(options);
  }
  return filters;
}

// A key gets a row in the lookup in which the number of its occurrences, including those of this lookup,
// reaches filter_freq. With before_lookup, that lookup still reads the default value.
TEST_P(AdmissionContract, RandomStreamsEqualTheRule) {
  for (const TableOptions& options : Filters()) {
    if (GetParam().is_slowest && !IsForSlowest(options.admission)) continue;
    SCOPED_TRACE(Describe(options));
    CountingTable table(GetParam(), options);
    std::map<int64_t, int64_t> occurrences;
    std::map<int64_t, int64_t> trained;
    std::mt19937_64 random(2);
    std::vector<int64_t> pool = DistinctIds(100, 3);
    for (const int64_t id : HostileIds()) pool.push_back(id);
    int64_t filtered = 0;
    // In 12 rounds the most frequent ids already pass a filter of 7.
    const int rounds = GetParam().is_slow ? 12 : 40;
    for (int round = 0; round < rounds; ++round) {
      std::set<int64_t> distinct;
      for (size_t i = 0; i < pool.size(); ++i) {
        if (random() % (2 + i % 40) == 0) distinct.insert(pool[i]);
      }
      const std::vector<int64_t> ids(distinct.begin(), distinct.end());
      std::vector<int64_t> counts;
      for (size_t i = 0; i < ids.size(); ++i) counts.push_back(1 + static_cast<int64_t>(random() % 3));
      ASSERT_TRUE(table.Train(ids, counts).ok());
      int64_t with_rows = 0;
      for (size_t i = 0; i < ids.size(); ++i) {
        const bool was_admitted = occurrences[ids[i]] >= options.admission.filter_freq;
        occurrences[ids[i]] += counts[i];
        const bool admitted = occurrences[ids[i]] >= options.admission.filter_freq;
        const bool reads_row = options.admission.before_lookup ? was_admitted : admitted;
        const auto times = trained.find(ids[i]);
        const float row = AddOnes(table.Initial(ids[i]), times == trained.end() ? 0 : times->second);
        ASSERT_EQ(table.read().at(ids[i]), reads_row ? row : kNotAdmitted);
        if (admitted) ++trained[ids[i]];
        with_rows += admitted ? 1 : 0;
        filtered += admitted ? 0 : 1;
      }
      ASSERT_EQ(table.trained_rows(), with_rows);
      ASSERT_EQ(table.table().Describe().rows, static_cast<int64_t>(trained.size()));
      ASSERT_EQ(table.table().lookup_counts().filtered_ids, filtered);
      ASSERT_EQ(table.table().lookup_counts().admitted_ids, static_cast<int64_t>(trained.size()));
    }
    const bool filters = options.admission.filter_freq > 0;
    pool.push_back(DistinctIds(101, 3).back());
    for (const auto& [key, value] : table.Read(pool)) {
      const bool reads_row = trained.count(key) == 1 || !filters;
      EXPECT_EQ(value, reads_row ? AddOnes(table.Initial(key), trained[key]) : kNotAdmitted) << key;
    }
  }
}

TEST_P(AdmissionContract, LookupsWithoutTrainingAreNotCounted) {
  TableOptions options = Filters()[2];
  CountingTable table(GetParam(), options);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(table.Read({9})[9], kNotAdmitted);
  ASSERT_TRUE(table.Train({9}, {1}).ok());
  EXPECT_EQ(table.Read({9})[9], kNotAdmitted);
  ASSERT_TRUE(table.Train({9}, {1}).ok());
  EXPECT_EQ(table.Read({9})[9], AddOnes(table.Initial(9), 1));
}

TEST_P(AdmissionContract, CountsStopAtTheGreatestNumber) {
  CountingTable table(GetParam(), Filters()[3]);
  const std::vector<int64_t> ids = {5, 6};
  const std::vector<int64_t> counts = {INT64_MAX, INT64_MAX - 1};
  const std::vector<int64_t> last_steps = {0, 0};
  ASSERT_TRUE(table.SetWaiting({ids, counts, last_steps}).ok());
  ASSERT_TRUE(table.Train({5, 6, 7}, {1, 2, 3}).ok());
  EXPECT_EQ(table.table().Describe().rows, 2) << "5 and 6 have waited long enough, 7 has not";
}

// The gradient of a lookup's weight is the sum of what its id has read, times the output's gradient.
TEST_P(AdmissionContract, GradientsOfWeightsAreOfWhatTheLookupRead) {
  for (const bool before_lookup : {false, true}) {
    TableOptions options = Filters()[2];
    options.admission.before_lookup = before_lookup;
    CountingTable table(GetParam(), options);
    ASSERT_TRUE(table.Train({9, 4}, {1, 1}).ok());
    ContractLookup lookup = SumOf(0, {{9, 8}, {4}});
    lookup.spec.weighted = true;
    for (ReferenceBag& bag : lookup.bags) bag.weights.assign(bag.ids.size(), 1.0);
    ASSERT_TRUE(table.group().Lookup({lookup}).ok());
    OutputValues gradients = {{2.0f, 3.0f}};
    OutputValues of_weights;
    ASSERT_TRUE(table.group().WeightGradients(gradients, &of_weights).ok());
    const auto read = [&](int64_t key) { return before_lookup ? kNotAdmitted : table.Initial(key); };
    EXPECT_EQ(of_weights[0], (std::vector<float>{2 * read(9), 2 * kNotAdmitted, 3 * read(4)}));
    ASSERT_TRUE(table.group().BackwardAndApply(gradients, "sgd", {1.0f}).ok());
    EXPECT_EQ(table.Read({9})[9], table.Initial(9) - 2.0f) << "the row is trained in the lookup that admits";
  }
}

TEST_P(AdmissionContract, AnErasedKeyWaitsAgain) {
  TableOptions options = Filters()[2];
  CountingTable table(GetParam(), options);
  ASSERT_TRUE(table.Train({5, 6}, {2, 1}).ok());
  ASSERT_TRUE(table.Erase({5, 6}).ok());
  EXPECT_EQ(table.table().Describe().rows, 0);
  ASSERT_TRUE(table.Train({5, 6}, {1, 1}).ok());
  EXPECT_EQ(table.table().Describe().rows, 0) << "6 was waiting, and Erase drops its count";
}

// Keeps all rows in a map, and sorts them to choose those to evict.
struct FullTableRule {
  struct Row {
    int64_t frequency = 0;
    int64_t last_used = 0;
    int64_t trained = 0;
  };

  OnFull on_full;
  int64_t capacity;
  std::map<int64_t, Row> rows;
  int64_t uses = 0;
  int64_t evicted = 0;

  // Returns false and changes nothing if the lookup's own rows do not fit.
  bool Train(const std::vector<int64_t>& ids, const std::vector<int64_t>& counts) {
    if (static_cast<int64_t>(ids.size()) > capacity) return false;
    const std::set<int64_t> looked_up(ids.begin(), ids.end());
    std::vector<std::tuple<int64_t, int64_t, int64_t>> others;
    for (const auto& [id, row] : rows) {
      if (looked_up.count(id) == 1) continue;
      others.emplace_back(on_full == OnFull::kEvictLfu ? row.frequency : 0, row.last_used, id);
    }
    std::sort(others.begin(), others.end());
    const int64_t surplus = static_cast<int64_t>(others.size() + looked_up.size()) - capacity;
    for (int64_t i = 0; i < surplus; ++i) rows.erase(std::get<2>(others[i]));
    evicted += std::max<int64_t>(surplus, 0);
    ++uses;
    for (size_t i = 0; i < ids.size(); ++i) {
      Row& row = rows[ids[i]];
      row.frequency += counts[i];
      row.last_used = uses;
      ++row.trained;
    }
    return true;
  }
};

TEST_P(CapacityContract, AFullTableEvictsTheLeastUsedRows) {
  for (const OnFull on_full : {OnFull::kEvictLru, OnFull::kEvictLfu}) {
    for (const uint64_t seed : {1, 2, 3}) {
      if (seed > (GetParam().is_slowest ? 1 : GetParam().is_slow ? 2 : 3)) continue;
      SCOPED_TRACE(std::string(NameOf(on_full)) + ", seed " + std::to_string(seed));
      std::mt19937_64 random(seed);
      const int64_t capacity = 1 + static_cast<int64_t>(random() % 40);
      TableOptions options = ContractOptions("full", 1, capacity);
      options.on_full = on_full;
      CountingTable table(GetParam(), options);
      FullTableRule rule{on_full, capacity, {}, 0, 0};
      std::vector<int64_t> pool = DistinctIds(60, seed);
      for (const int64_t id : HostileIds()) pool.push_back(id);
      // 20 rounds are enough for every table to fill and evict, which is checked below.
      const int rounds = GetParam().is_slow ? 20 : 80;
      for (int round = 0; round < rounds; ++round) {
        const uint64_t most =
            random() % 7 == 0 ? static_cast<uint64_t>(capacity) + 3 : 1 + static_cast<uint64_t>(capacity) / 3;
        std::set<int64_t> distinct;
        for (uint64_t i = random() % (most + 1); i > 0; --i) {
          distinct.insert(pool[random() % (1 + random() % pool.size())]);
        }
        std::vector<int64_t> ids(distinct.begin(), distinct.end());
        std::shuffle(ids.begin(), ids.end(), random);
        std::vector<int64_t> counts;
        for (size_t i = 0; i < ids.size(); ++i) counts.push_back(1 + static_cast<int64_t>(random() % 4));
        const Status status = table.Train(ids, counts);
        ASSERT_EQ(status.ok(), rule.Train(ids, counts)) << status.message();
        if (!status.ok()) ExpectNames(status, StatusCode::kResourceExhausted, {"'full'", "at most", "needs"});
        ASSERT_EQ(table.table().Describe().rows, static_cast<int64_t>(rule.rows.size()));
        for (const auto& [key, value] : table.Read(pool)) {
          const auto row = rule.rows.find(key);
          const int64_t trained = row == rule.rows.end() ? 0 : row->second.trained;
          ASSERT_EQ(value, AddOnes(table.Initial(key), trained)) << "key " << key << " in round " << round;
        }
      }
      EXPECT_GT(rule.evicted, 0);
    }
  }
}

TEST_P(SaveEvictionContract, EvictsRowsWithoutARecentUpdate) {
  TableOptions options = ContractOptions("aging", 1);
  options.eviction.kind = Eviction::Kind::kGlobalStep;
  options.eviction.steps_to_live = 2;
  CountingTable table(GetParam(), options);
  for (const int64_t key : {1, 2, 3, 4}) ASSERT_TRUE(table.Train({key}, {1}).ok());
  EXPECT_EQ(table.EvictForSave({1, 2, 3, 4}), (std::set<int64_t>{2, 3, 4})) << "1 is 3 steps old";
  ASSERT_TRUE(table.Train({2}, {1}).ok());
  EXPECT_EQ(table.EvictForSave({1, 2, 3, 4}), (std::set<int64_t>{2, 3, 4}));
  ASSERT_TRUE(table.Train({5}, {1}).ok());
  EXPECT_EQ(table.EvictForSave({1, 2, 3, 4, 5}), (std::set<int64_t>{2, 4, 5}));
  // The age of a row begins when it is inserted.
  ASSERT_TRUE(table.group().Assign(0, {6}, {1.0f}).ok());
  ASSERT_TRUE(table.Train({5}, {1}).ok());
  EXPECT_EQ(table.EvictForSave({2, 4, 5, 6}), (std::set<int64_t>{2, 5, 6}));
}

TEST_P(SaveEvictionContract, TheProgramsGlobalStepIsTheClock) {
  TableOptions options = ContractOptions("aging", 1);
  options.eviction.kind = Eviction::Kind::kGlobalStep;
  options.eviction.steps_to_live = 10;
  CountingTable table(GetParam(), options);
  ASSERT_TRUE(table.table().SetGlobalStep(100).ok());
  ASSERT_TRUE(table.Train({1}, {1}).ok());
  EXPECT_EQ(table.table().Describe().steps, 100);
  ASSERT_TRUE(table.table().SetGlobalStep(110).ok());
  ASSERT_TRUE(table.Train({2}, {1}).ok());
  EXPECT_EQ(table.EvictForSave({1, 2}), (std::set<int64_t>{1, 2}));
  ASSERT_TRUE(table.table().SetGlobalStep(111).ok());
  EXPECT_EQ(table.EvictForSave({1, 2}), (std::set<int64_t>{2}));
}

TEST_P(SaveEvictionContract, EvictsRowsOfSmallNorm) {
  TableOptions options = ContractOptions("small", 1);
  options.eviction.kind = Eviction::Kind::kL2Weight;
  options.eviction.l2_weight_threshold = 2.0f;  // of 0.5 w^2: |w| < 2
  CountingTable table(GetParam(), options);
  // Initial rows are in [-1, 1), and each step adds 1.
  for (int step = 0; step < 4; ++step) ASSERT_TRUE(table.Train({7}, {1}).ok());
  ASSERT_TRUE(table.Train({8}, {1}).ok());
  const float small = AddOnes(table.Initial(8), 1);
  ASSERT_LT(small * small, 4.0f);
  EXPECT_EQ(table.EvictForSave({7, 8}), (std::set<int64_t>{7}));
}

}  // namespace
}  // namespace sok
