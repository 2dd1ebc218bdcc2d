// Ids that wait for rows: erased, restored, saved; and the map that holds them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/cpu/table/admission_filter.h"
#include "cc/cpu/table/testing/test_table.h"

namespace sok {
namespace {

TableOptions CounterOptions(int64_t filter_freq) {
  TableOptions options = TestOptions(2);
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = filter_freq;
  return options;
}

TableOptions BloomOptions(int64_t filter_freq, int bits) {
  TableOptions options = CounterOptions(filter_freq);
  options.admission.kind = Admission::Kind::kBloom;
  options.admission.max_element_size = 1000;
  options.admission.false_positive_probability = 1e-9;
  options.admission.counter_bits = bits;
  return options;
}

TEST(TableAdmissionTest, AnErasedKeyIsCountedFromZeroByACounterButNotByABloomFilter) {
  for (const TableOptions& options : {CounterOptions(3), BloomOptions(3, 16)}) {
    auto table = MakeTestTable(options);
    TrainingLookup(table.get(), {5, 6}, {3, 2});
    InlineExecutor executor;
    int64_t erased;
    const std::vector<int64_t> keys = {5, 6};
    ASSERT_TRUE(table->Erase({executor}, keys, &erased).ok());
    EXPECT_EQ(erased, 1);
    const std::vector<int64_t> rows = TrainingLookup(table.get(), {5}, {1});
    EXPECT_EQ(rows[0] != Table::kAbsent, options.admission.kind == Admission::Kind::kBloom);
    if (table->waiting() == nullptr) continue;
    EXPECT_EQ(table->waiting()->size(), 1) << "5 waits, 6 was erased";
    EXPECT_EQ(table->waiting()->erased_ids(), (std::vector<int64_t>{})) << "not tracked";
  }
}

TEST(TableAdmissionTest, AnIdThatGetsARowOtherwiseNoLongerWaits) {
  auto table = MakeTestTable(CounterOptions(3));
  TrainingLookup(table.get(), {5, 6}, {2, 1});
  InlineExecutor executor;
  const std::vector<int64_t> keys = {5};
  std::vector<int64_t> rows(1);
  ASSERT_TRUE(table->FindOrMake(executor, keys, Span<int64_t>(rows)).ok());
  EXPECT_EQ(table->waiting()->size(), 1) << "6 waits";
  int64_t erased;
  ASSERT_TRUE(table->Erase({executor}, keys, &erased).ok());
  EXPECT_EQ(TrainingLookup(table.get(), {5}, {1})[0], Table::kAbsent) << "5 is counted from zero";
}

TEST(TableAdmissionTest, ALookupThatOnlyCountsIsAChange) {
  for (const OnFull on_full : {OnFull::kError, OnFull::kEvictLru, OnFull::kEvictLfu}) {
    TableOptions options = on_full == OnFull::kError ? CounterOptions(2) : TestOptions(2);
    options.on_full = on_full;
    options.capacity = 10;
    auto table = MakeTestTable(options);
    const std::vector<int64_t> rows = TrainingLookup(table.get(), {1, 2}, {2, 2});
    ASSERT_TRUE(table->TrackChanges().ok());
    table->BeginSave();
    table->EndSave(true);
    TrainingLookup(table.get(), {2}, {1});
    EXPECT_FALSE(table->changed(rows[0]));
    EXPECT_TRUE(table->changed(rows[1])) << "its count, or its last use";
  }
}

TEST(TableAdmissionTest, AFullTableChangesNoCount) {
  TableOptions options = CounterOptions(2);
  options.capacity = 1;
  auto table = MakeTestTable(options);
  TrainingLookup(table.get(), {1, 2}, {2, 1});
  InlineExecutor executor;
  const std::vector<int64_t> ids = {1, 2, 3};
  const std::vector<int64_t> counts = {1, 1, 1};
  std::vector<int64_t> rows(3);
  std::vector<int64_t> read_default;
  const Status status = table->FindForTraining(executor, ids, counts, Span<int64_t>(rows), &read_default);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(table->frequency(0), 2);
  EXPECT_EQ(table->lookup_counts().distinct_ids, 2) << "from the first lookup";
  EXPECT_EQ(table->waiting()->size(), 1);
  EXPECT_EQ(table->waiting()->count(0), 1);
  EXPECT_EQ(table->uses(), 1);
}

TEST(TableAdmissionTest, ASaveErasesIdsThatWaitTooLong) {
  TableOptions options = CounterOptions(10);
  options.eviction.kind = Eviction::Kind::kGlobalStep;
  options.eviction.steps_to_live = 1;
  auto table = MakeTestTable(options);
  ASSERT_TRUE(table->TrackChanges().ok());
  InlineExecutor executor;
  const std::vector<float> hyper = {0.1f};
  const auto step = [&] {
    ASSERT_TRUE(table->ApplyGradients({executor}, "sgd", hyper, Span<const int64_t>(), nullptr, true).ok());
  };
  TrainingLookup(table.get(), {1, 2}, {1, 1});
  step();
  TrainingLookup(table.get(), {2}, {1});
  step();
  int64_t evicted;
  ASSERT_TRUE(table->EvictForSave(executor, &evicted).ok());
  EXPECT_EQ(evicted, 0) << "waiting ids have no rows";
  EXPECT_EQ(table->waiting()->size(), 1);
  EXPECT_EQ(table->waiting()->erased_ids(), (std::vector<int64_t>{1}));
  EXPECT_EQ(table->waiting()->id(1), 2);
}

TEST(TableAdmissionTest, ErrorsNameBadPolicies) {
  InlineExecutor executor;
  const auto refused = [&](const TableOptions& options, const std::string& word) {
    const Status status = Table::Create(executor, options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    ExpectMentions(status, {"'table'", word});
  };
  refused(CounterOptions(-1), "filter_freq");
  refused(BloomOptions(256, 8), "256");
  TableOptions direct = CounterOptions(2);
  direct.use_hashtable = false;
  direct.capacity = 4;
  refused(direct, "use_hashtable=False");
  TableOptions unbounded = TestOptions(1);
  unbounded.on_full = OnFull::kEvictLru;
  refused(unbounded, "capacity");
  TableOptions eviction = TestOptions(1);
  eviction.eviction.kind = Eviction::Kind::kGlobalStep;
  refused(eviction, "steps_to_live");
  eviction.eviction.kind = Eviction::Kind::kL2Weight;
  eviction.eviction.l2_weight_threshold = std::nanf("");
  refused(eviction, "l2_weight_threshold");
  TableOptions value = CounterOptions(2);
  value.admission.default_value = INFINITY;
  refused(value, "default_value_no_permission");
}

TEST(WaitingIdsTest, RandomStreamsEqualAMap) {
  WaitingIds waiting;
  ASSERT_TRUE(waiting.TrackChanges().ok());
  std::map<int64_t, std::pair<int64_t, int64_t>> expected;
  std::vector<int64_t> pool = DistinctIds(100, 5);
  for (const int64_t id : HostileIds()) pool.push_back(id);
  std::mt19937_64 random(4);
  for (int round = 0; round < 5000; ++round) {
    const int64_t id = pool[random() % pool.size()];
    if (random() % 3 == 0) {
      ASSERT_EQ(waiting.Erase(id), expected.erase(id) == 1);
    } else {
      const int64_t count = static_cast<int64_t>(random() % 9);
      ASSERT_TRUE(waiting.Set(id, count, round).ok());
      expected[id] = {count, round};
    }
    ASSERT_EQ(waiting.size(), static_cast<int64_t>(expected.size()));
  }
  std::map<int64_t, std::pair<int64_t, int64_t>> actual;
  for (int64_t place = 0; place < waiting.limit(); ++place) {
    if (waiting.in_use(place)) {
      actual[waiting.id(place)] = {waiting.count(place), waiting.last_step(place)};
      EXPECT_TRUE(waiting.changed(place));
    }
  }
  EXPECT_EQ(actual, expected);
  EXPECT_LE(waiting.limit(), static_cast<int64_t>(pool.size()));
  EXPECT_FALSE(waiting.erased_ids().empty());
}

// The ids at all places; INT64_MIN where there is none.
std::vector<int64_t> IdsOf(const WaitingIds& waiting) {
  std::vector<int64_t> ids;
  for (int64_t place = 0; place < waiting.limit(); ++place) {
    ids.push_back(waiting.in_use(place) ? waiting.id(place) : INT64_MIN);
  }
  return ids;
}

TEST(WaitingIdsTest, ErasedTogetherTheOrderOfIdsMakesNoDifference) {
  std::vector<std::vector<int64_t>> places;
  for (const std::vector<int64_t>& erased :
       {std::vector<int64_t>{2, 99, 4, 5, 4}, std::vector<int64_t>{5, 4, 2}}) {
    WaitingIds waiting;
    for (int64_t id = 0; id < 7; ++id) ASSERT_TRUE(waiting.Set(id, 1, 0).ok());
    ASSERT_TRUE(waiting.Reserve(0, 5).ok());
    waiting.EraseAll(erased);
    EXPECT_EQ(waiting.size(), 4);
    for (int64_t id = 10; id < 13; ++id) ASSERT_TRUE(waiting.Set(id, 1, 0).ok());
    places.push_back(IdsOf(waiting));
  }
  EXPECT_EQ(places[0], (std::vector<int64_t>{0, 1, 12, 3, 11, 10, 6})) << "the last freed first";
  EXPECT_EQ(places[1], places[0]);
}

}  // namespace
}  // namespace sok
