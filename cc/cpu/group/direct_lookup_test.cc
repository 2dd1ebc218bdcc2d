// Read-only lookups id by id give the same bits as the passes over distinct ids.
#include "cc/cpu/group/direct_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/huge_pages.h"
#include "cc/base/testing/vector_levels.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/group/group_lookup.h"
#include "cc/cpu/group/group_training.h"
#include "cc/cpu/group/testing/random_group.h"

namespace sok {
namespace {

void TakeStep(Table* table, const std::string& optimizer, std::vector<float> hyper,
              const std::vector<int64_t>& keys) {
  InlineExecutor executor;
  std::vector<int64_t> rows(keys.size());
  const std::vector<int64_t> counts(keys.size(), 1);
  std::vector<int64_t> read_default;
  ASSERT_TRUE(table->FindForTraining(executor, keys, counts, Span<int64_t>(rows), &read_default).ok());
  table->MakeReferences(Span<int64_t>(rows));
  std::vector<float> gradients(keys.size() * table->options().dim);
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = std::sin(static_cast<float>(i));
  // Ids that are not admitted have no row to train.
  for (const int64_t row : rows) ASSERT_TRUE(row != Table::kAbsent || table->has_admission());
  if (table->has_admission()) return;
  const Status status = table->ApplyGradients({executor}, optimizer, hyper, rows, gradients.data(), true);
  ASSERT_TRUE(status.ok()) << status.message();
}

// Every third of a table's ids.
std::vector<int64_t> SomeIds(const std::vector<int64_t>& ids) {
  std::set<int64_t> some;
  for (size_t i = 0; i < ids.size(); i += 3) some.insert(ids[i]);
  return {some.begin(), some.end()};
}

bool SameBits(const std::vector<float>& one, const std::vector<float>& other) {
  return one.size() == other.size() &&
         (one.empty() || std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0);
}

// Reads all lookups of a group without weights directly, even if GroupForward would not. Returns the tables
// for which reading gave up.
StatusOr<std::set<int>> ReadAllDirectly(Executor& executor, Group* group) {
  group->MakeOutputs();
  ObjectPool<DirectScratch> scratch;
  std::vector<std::atomic<bool>> gave_up(group->tables.size());
  for (size_t l = 0; l < group->plan.lookups.size(); ++l) {
    const LookupBags& lookup = group->plan.lookups[l];
    if (!lookup.weights.empty()) continue;
    const Span<const int64_t> ids = group->ids[lookup.table];
    SOK_RETURN_IF_ERROR(ReadDirectly(executor, *group->tables[lookup.table], lookup,
                                     ids.subspan(lookup.first, lookup.count), group->output_rows[l],
                                     OutputStores::kCached, &scratch, &gave_up[lookup.table]));
  }
  std::set<int> result;
  for (size_t t = 0; t < gave_up.size(); ++t) {
    if (gave_up[t]) result.insert(static_cast<int>(t));
  }
  return result;
}

// Compares reading the group by distinct ids with reading it directly, and with what GroupForward chooses,
// for several numbers of threads and vector levels.
void ExpectSame(Group* group) {
  group->plan.training = false;
  InlineExecutor inline_executor;
  GroupScratch scratch;
  ASSERT_TRUE(group->Merge(inline_executor, &scratch).ok());
  ASSERT_TRUE(group->Read(inline_executor, &scratch).ok());
  const std::vector<std::vector<float>> expected = group->outputs;
  std::vector<int64_t> sizes;
  for (const auto& table : group->tables) sizes.push_back(table->size());
  for (const VectorLevel level : VectorLevels()) {
    const WithVectorLevel with_level(level);
    for (const int threads : {1, 2, 3, 4}) {
      ThreadPool executor(threads, /*min_block_ns=*/0);
      const StatusOr<std::set<int>> gave_up = ReadAllDirectly(executor, group);
      ASSERT_TRUE(gave_up.ok()) << gave_up.status().message();
      for (size_t l = 0; l < expected.size(); ++l) {
        const LookupBags& lookup = group->plan.lookups[l];
        if (!lookup.weights.empty() || gave_up.value().count(lookup.table) != 0) continue;
        EXPECT_TRUE(SameBits(group->outputs[l], expected[l])) << "lookup " << l << ", " << threads;
      }
      const Status status = group->Forward(executor);
      ASSERT_TRUE(status.ok()) << status.message();
      for (size_t l = 0; l < expected.size(); ++l) {
        EXPECT_TRUE(SameBits(group->outputs[l], expected[l])) << "lookup " << l << ", " << threads;
      }
      for (size_t t = 0; t < group->tables.size(); ++t) {
        EXPECT_EQ(group->plan.parts[t].trained, 0);
        EXPECT_EQ(group->tables[t]->size(), sizes[t]) << "nothing is inserted";
      }
    }
  }
}

Group UnweightedGroup(uint32_t seed, int bags, int hotness, const std::vector<int64_t>& dims) {
  std::mt19937 random(seed);
  Group group;
  for (const int64_t dim : dims) group.AddTable(dim);
  const Combiner combiners[] = {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN};
  for (int l = 0; l < 2 * static_cast<int>(dims.size()); ++l) {
    group.AddLookup(l % static_cast<int>(dims.size()), RandomBags(&random, bags, 1 + l * hotness, false),
                    combiners[l % 3], false);
  }
  return group;
}

class DirectLookupTest : public ::testing::TestWithParam<int> {};

TEST_P(DirectLookupTest, EqualsPassesOverDistinctIds) {
  Group group = UnweightedGroup(GetParam(), GetParam(), 2, {16, 3, 64});
  ExpectSame(&group);  // in empty tables
  for (size_t t = 0; t < group.tables.size(); ++t) {
    TakeStep(group.tables[t].get(), "sgd", {0.5f}, SomeIds(group.ids[t]));
  }
  ExpectSame(&group);
}

INSTANTIATE_TEST_SUITE_P(Batches, DirectLookupTest, ::testing::Values(0, 1, 2, 7, 64, 700));

TEST(DirectLookupOfOneTableTest, AgreesWithTheReference) {
  Group group = UnweightedGroup(5, 90, 9, {7});
  InlineExecutor executor;
  group.plan.training = false;
  ASSERT_TRUE(group.Forward(executor).ok());
  const ReferenceRows rows = group.Rows(0);
  for (size_t l = 0; l < group.bags.size(); ++l) {
    for (size_t b = 0; b < group.bags[l].size(); ++b) {
      const std::vector<double> expected =
          ReferencePool(rows, group.bags[l][b], group.plan.lookups[l].combiner, 7);
      for (int64_t d = 0; d < 7; ++d) ASSERT_NEAR(group.outputs[l][b * 7 + d], expected[d], 1e-4);
    }
  }
}

// Bags that are longer than a block of ids, one of them the last, between short and empty ones.
TEST(DirectLookupOfOneTableTest, BagsOfAnyLength) {
  std::mt19937 random(3);
  std::vector<ReferenceBag> bags;
  for (const int length : {0, 5000, 1, 0, 0, 2047, 1, 2048, 2049, 3, 9000, 1, 0}) {
    ReferenceBag bag;
    for (int i = 0; i < length; ++i) bag.ids.push_back(static_cast<int64_t>(random() % 3000));
    bag.weights.assign(length, 1.0);
    bags.push_back(bag);
  }
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN}) {
    Group group;
    group.AddTable(16);
    group.AddLookup(0, bags, combiner, false);
    TakeStep(group.tables[0].get(), "adagrad", {0.1f, 0.1f, 1e-7f}, SomeIds(group.ids[0]));
    ExpectSame(&group);
  }
}

// Adds a lookup without bags, which has one output row for each id.
void AddGathered(Group* group, int t, const std::vector<int64_t>& ids) {
  LookupBags lookup;
  lookup.table = t;
  lookup.first = static_cast<int64_t>(group->ids[t].size());
  lookup.count = static_cast<int64_t>(ids.size());
  group->ids[t].insert(group->ids[t].end(), ids.begin(), ids.end());
  group->plan.lookups.push_back(lookup);
}

TEST(DirectLookupOfOneTableTest, LookupsThatAreNotPooled) {
  for (const int64_t dim : {1, 16, 17, 128}) {
    for (const int64_t count : {0, 1, 100, 2048, 2049, 7000}) {
      std::mt19937 random(static_cast<uint32_t>(count));
      std::vector<int64_t> ids;
      for (int64_t i = 0; i < count; ++i) ids.push_back(random() % (1 + random() % 4000));
      Group group;
      group.AddTable(dim);
      AddGathered(&group, 0, {4, INT64_MIN, -1, 4});
      AddGathered(&group, 0, ids);
      TakeStep(group.tables[0].get(), "sgd", {0.5f}, SomeIds(group.ids[0]));
      ExpectSame(&group);
    }
  }
}

TEST(DirectLookupOfOneTableTest, IdsThatAreNotAdmittedReadAsTheDefault) {
  Group group = UnweightedGroup(8, 200, 3, {5});
  TableOptions options = group.tables[0]->options();
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 2;
  options.admission.default_value = 0.5f;
  InlineExecutor executor;
  group.tables[0] = std::move(Table::Create(executor, options).value());
  const std::vector<int64_t> ids = SomeIds(group.ids[0]);
  TakeStep(group.tables[0].get(), "sgd", {0.5f}, ids);
  const int64_t waiting = group.tables[0]->waiting()->size();
  ExpectSame(&group);
  TakeStep(group.tables[0].get(), "sgd", {0.5f}, {ids[0], ids[1]});
  ASSERT_EQ(group.tables[0]->size(), 2);
  ExpectSame(&group);
  EXPECT_EQ(group.tables[0]->waiting()->size(), waiting - 2) << "reading counts nothing";
}

TEST(DirectLookupOfOneTableTest, EvictedRowsReadAsTheirInitialValues) {
  Group group = UnweightedGroup(9, 100, 3, {4});
  TableOptions options = group.tables[0]->options();
  options.capacity = 8;
  options.on_full = OnFull::kEvictLru;
  InlineExecutor executor;
  group.tables[0] = std::move(Table::Create(executor, options).value());
  TakeStep(group.tables[0].get(), "sgd", {0.5f}, {0, 1, 2, 3, 4, 5, 6, 7});
  TakeStep(group.tables[0].get(), "sgd", {0.5f}, {8, 9, 10, -1});
  const int64_t uses = group.tables[0]->uses();
  ExpectSame(&group);
  EXPECT_EQ(group.tables[0]->uses(), uses);
  EXPECT_EQ(group.tables[0]->size(), 8);
}

TEST(DirectLookupOfOneTableTest, RowsAreBroughtUpToDateFirst) {
  Group group = UnweightedGroup(10, 60, 3, {6});
  const std::vector<float> hyper = {0.1f, 0.9f, 0.999f, 1e-7f};
  TakeStep(group.tables[0].get(), "adam", hyper, SomeIds(group.ids[0]));
  TakeStep(group.tables[0].get(), "adam", hyper, {123456});
  Group other = UnweightedGroup(10, 60, 3, {6});
  TakeStep(other.tables[0].get(), "adam", hyper, SomeIds(other.ids[0]));
  TakeStep(other.tables[0].get(), "adam", hyper, {123456});
  // One group is read before its rows are up to date, the other afterwards.
  InlineExecutor executor;
  group.plan.training = other.plan.training = false;
  ASSERT_TRUE(group.Forward(executor).ok());
  ASSERT_TRUE(other.tables[0]->BringUpToDate(executor, other.tables[0]->Rows()).ok());
  ASSERT_TRUE(other.Forward(executor).ok());
  for (size_t l = 0; l < group.outputs.size(); ++l) {
    EXPECT_TRUE(SameBits(group.outputs[l], other.outputs[l]));
  }
  EXPECT_FALSE(CanReadDirectly(group.plan, 0, *group.tables[0], 1));
}

TEST(DirectLookupOfOneTableTest, WithoutHashingTheFirstBadKeyIsNamed) {
  Group group;
  group.AddTable(3);
  TableOptions options = group.tables[0]->options();
  options.use_hashtable = false;
  options.capacity = 50;
  InlineExecutor executor;
  group.tables[0] = std::move(Table::Create(executor, options).value());
  std::vector<int64_t> ids(9000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i % 50);
  AddGathered(&group, 0, ids);
  ExpectSame(&group);
  group.ids[0][4000] = 50;
  group.ids[0][7000] = 77;
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads, /*min_block_ns=*/0);
    for (const Status& status : {group.Forward(pool), ReadAllDirectly(pool, &group).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("'table0' has no row for key 50:"), std::string::npos)
          << status.message();
    }
  }
}

// The gradients of weights read the rows again, even without training.
TEST(DirectLookupOfOneTableTest, WeightsHaveGradientsWithoutTraining) {
  Group group;
  group.AddTable(2);
  group.AddLookup(0, {{{5, 6}, {1, 1}}, {{5}, {1}}}, Combiner::kSum, false);
  group.AddLookup(0, {{{5, 6}, {0.5, 2.0}}, {{7}, {1.5}}}, Combiner::kSum, true);
  TakeStep(group.tables[0].get(), "sgd", {0.0f}, {1, 2, 3, 4, 8, 9});
  ExpectSame(&group);
  EXPECT_FALSE(CanReadDirectly(group.plan, 0, *group.tables[0], 6));
  InlineExecutor executor;
  const std::vector<float> gradient = {1, 10, 100, 1000};
  std::vector<float> weight_grads(3);
  ASSERT_TRUE(WeightBackward(executor, group.tables[0].get(), group.plan, 1, {gradient.data(), 2},
                             Span<float>(weight_grads))
                  .ok());
  const ReferenceRows rows = group.Rows(0);
  EXPECT_NEAR(weight_grads[1], rows.at(6)[0] + 10 * rows.at(6)[1], 1e-4);
}

TEST(DirectLookupOfOneTableTest, WeightsOfNoIdsHaveNoGradients) {
  Group group;
  group.AddTable(2);
  group.AddLookup(0, {{{5, 6}, {1, 1}}}, Combiner::kSum, false);
  group.AddLookup(0, {{{}, {}}}, Combiner::kMean, true);
  TakeStep(group.tables[0].get(), "sgd", {0.5f}, {5, 6});
  ExpectSame(&group);
  EXPECT_TRUE(group.plan.parts[0].inverse.empty());
  InlineExecutor executor;
  const std::vector<float> gradient = {1, 10};
  EXPECT_TRUE(WeightBackward(executor, group.tables[0].get(), group.plan, 1, {gradient.data(), 2}, {}).ok());
}

// A training step with the plan of a lookup without training changes no row, but counts as a step.
TEST(DirectLookupOfOneTableTest, PlansWithoutTrainingTrainNothing) {
  for (const float rate : {0.1f, 0.2f}) {
    Group group = UnweightedGroup(11, 30, 3, {6});
    Table& table = *group.tables[0];
    const std::set<int64_t> ids(group.ids[0].begin(), group.ids[0].end());
    std::vector<int64_t> keys(ids.begin(), ids.end());
    for (int64_t key = 1000; key < 1100; ++key) keys.push_back(key);
    TakeStep(&table, "sgd", {0.5f}, keys);
    ExpectSame(&group);
    EXPECT_TRUE(group.plan.parts[0].inverse.empty());
    const std::vector<std::vector<float>> before = group.outputs;
    std::vector<GradientRows> gradients;
    for (const std::vector<float>& output : group.outputs) gradients.push_back({output.data(), 6});
    const std::vector<float> hyper = {rate};
    const EngineStep step = {0, &table, hyper};
    GradientScratch scratch;
    InlineExecutor executor;
    ASSERT_TRUE(GroupTrain(executor, group.plan, gradients, "sgd", {&step, 1}, &scratch).ok());
    EXPECT_EQ(table.steps(), 2);
    ASSERT_TRUE(group.Forward(executor).ok());
    EXPECT_EQ(group.outputs, before);
  }
}

// One plan is used for reading and training in turn: training fills in the parts that reading leaves empty.
TEST(DirectLookupOfOneTableTest, APlanServesReadingAndTrainingInTurn) {
  Group group = UnweightedGroup(12, 40, 3, {4, 9});
  InlineExecutor executor;
  for (const bool training : {true, false, true, false}) {
    group.plan.training = training;
    ASSERT_TRUE(group.Forward(executor).ok());
    for (size_t t = 0; t < group.tables.size(); ++t) {
      const TablePart& part = group.plan.parts[t];
      EXPECT_EQ(part.trained, training ? group.tables[t]->size() : 0);
      const int64_t ids = static_cast<int64_t>(group.ids[t].size());
      EXPECT_EQ(part.inverse.empty(),
                CanReadDirectly(group.plan, static_cast<int>(t), *group.tables[t], ids));
      EXPECT_EQ(part.rows.size(), part.unique.size());
    }
  }
}

TEST(DirectLookupOfOneTableTest, FewIdsForEachRowAreReadDirectly) {
  Group group;
  group.AddTable(2);
  group.plan.training = false;
  EXPECT_FALSE(CanReadDirectly(group.plan, 0, *group.tables[0], 1)) << "no id has a row";
  TakeStep(group.tables[0].get(), "sgd", {0.5f}, {1, 2, 3});
  EXPECT_TRUE(CanReadDirectly(group.plan, 0, *group.tables[0], 12));
  EXPECT_FALSE(CanReadDirectly(group.plan, 0, *group.tables[0], 13));
  group.plan.training = true;
  EXPECT_FALSE(CanReadDirectly(group.plan, 0, *group.tables[0], 12));
}

// Which of the ids of a lookup have no row.
enum class Absent { kNone, kFew, kHalf, kOneBlock, kAll };

// The number of keys with rows. A lookup has 5 blocks of ids.
constexpr int64_t kPresentKeys = 6000;
constexpr int64_t kLookupIds = 10240;

std::vector<int64_t> IdsWith(Absent absent) {
  std::vector<int64_t> ids(kLookupIds);
  for (int64_t i = 0; i < kLookupIds; ++i) {
    const bool is_absent = absent == Absent::kAll || (absent == Absent::kHalf && i % 2 == 0) ||
                           (absent == Absent::kFew && i % 20 == 0) ||
                           // These ids contain a whole block, however threads divide the ids.
                           (absent == Absent::kOneBlock && i >= kLookupIds - 5000 && i < kLookupIds - 900);
    const int64_t key = i * i % kPresentKeys;
    ids[i] = is_absent ? key + kPresentKeys : key;
  }
  return ids;
}

// A table in which kPresentKeys keys have rows.
std::unique_ptr<Table> TableWithKeys(int64_t dim, bool admission, InitializerKind initializer) {
  TableOptions options = MakeTable("table0", dim)->options();
  options.initializer.kind = initializer;
  if (admission) options.admission = {Admission::Kind::kCounter, 2, 0.5f};
  InlineExecutor executor;
  std::unique_ptr<Table> table = std::move(Table::Create(executor, options).value());
  std::vector<int64_t> keys(kPresentKeys);
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<int64_t> rows(keys.size());
  EXPECT_TRUE(table->FindOrMake(executor, keys, Span<int64_t>(rows)).ok());
  return table;
}

// Bags of three ids; the last bag has all remaining ids.
std::vector<ReferenceBag> BagsOf(const std::vector<int64_t>& ids) {
  std::vector<ReferenceBag> bags(ids.size() / 3);
  for (size_t i = 0; i < ids.size(); ++i) {
    ReferenceBag& bag = bags[std::min(i / 3, bags.size() - 1)];
    bag.ids.push_back(ids[i]);
    bag.weights.push_back(1.0);
  }
  return bags;
}

struct AbsentCase {
  const char* name;
  Absent absent;
  bool pooled;
  bool admission;
  int64_t dim;
  InitializerKind initializer;
  bool gives_up;
};

Group GroupOf(const AbsentCase& c) {
  Group group;
  group.AddTable(c.dim);
  group.tables[0] = TableWithKeys(c.dim, c.admission, c.initializer);
  // All ids of the table's first lookup have rows; it is merged if the second lookup is.
  for (const Absent absent : {Absent::kNone, c.absent}) {
    if (c.pooled) {
      group.AddLookup(0, BagsOf(IdsWith(absent)), Combiner::kMean, false);
    } else {
      AddGathered(&group, 0, IdsWith(absent));
    }
  }
  group.plan.training = false;
  return group;
}

class AbsentIdsTest : public ::testing::TestWithParam<AbsentCase> {};

TEST_P(AbsentIdsTest, ReadingGivesUpIfInitialRowsCostTooMuch) {
  Group group = GroupOf(GetParam());
  const std::set<int> expected = GetParam().gives_up ? std::set<int>{0} : std::set<int>{};
  for (const int threads : {1, 2, 3, 4}) {
    ThreadPool executor(threads, /*min_block_ns=*/0);
    const StatusOr<std::set<int>> gave_up = ReadAllDirectly(executor, &group);
    ASSERT_TRUE(gave_up.ok()) << gave_up.status().message();
    EXPECT_EQ(gave_up.value(), expected) << threads << " threads";
    ASSERT_TRUE(CanReadDirectly(group.plan, 0, *group.tables[0], group.ids[0].size()));
    ASSERT_TRUE(group.Forward(executor).ok());
    EXPECT_EQ(group.plan.parts[0].inverse.size(), GetParam().gives_up ? group.ids[0].size() : 0)
        << "merged if reading gave up, " << threads << " threads";
  }
}

TEST_P(AbsentIdsTest, EqualsPassesOverDistinctIds) {
  Group group = GroupOf(GetParam());
  ExpectSame(&group);
}

constexpr InitializerKind kUniform = InitializerKind::kUniform;
constexpr InitializerKind kConstant = InitializerKind::kConstant;
constexpr InitializerKind kNormal = InitializerKind::kTruncatedNormal;

constexpr AbsentCase kAbsentCases[] = {
    {"AllPooled", Absent::kAll, true, false, 128, kUniform, true},
    {"AllGathered", Absent::kAll, false, false, 128, kUniform, true},
    {"HalfPooled", Absent::kHalf, true, false, 128, kUniform, true},
    {"HalfGathered", Absent::kHalf, false, false, 128, kUniform, true},
    {"OneBlockPooled", Absent::kOneBlock, true, false, 128, kUniform, true},
    {"OneBlockGathered", Absent::kOneBlock, false, false, 128, kUniform, true},
    {"FewPooled", Absent::kFew, true, false, 128, kUniform, false},
    {"FewGathered", Absent::kFew, false, false, 128, kUniform, false},
    {"FewOfSlowValues", Absent::kFew, true, false, 96, kNormal, true},
    {"AllOfFewValues", Absent::kAll, false, false, 16, kUniform, false},
    {"HalfOfFewValues", Absent::kHalf, true, false, 2, kUniform, false},
    {"AllOfOneValue", Absent::kAll, true, false, 64, kConstant, false},
    {"AllPooledWithAdmission", Absent::kAll, true, true, 16, kUniform, false},
    {"AllGatheredWithAdmission", Absent::kAll, false, true, 16, kUniform, false},
    {"HalfPooledWithAdmission", Absent::kHalf, true, true, 16, kUniform, false},
    {"HalfGatheredWithAdmission", Absent::kHalf, false, true, 16, kUniform, false},
    {"OneBlockPooledWithAdmission", Absent::kOneBlock, true, true, 16, kUniform, false},
    {"OneBlockGatheredWithAdmission", Absent::kOneBlock, false, true, 16, kUniform, false},
};

INSTANTIATE_TEST_SUITE_P(Cases, AbsentIdsTest, ::testing::ValuesIn(kAbsentCases),
                         [](const auto& info) { return info.param.name; });

// A call ends early if a call for another lookup of the same table has given up.
TEST(DirectLookupOfOneTableTest, NothingIsReadOnceAnotherCallGaveUp) {
  Group group = GroupOf({"", Absent::kNone, false, false, 16, kUniform, false});
  group.MakeOutputs();
  for (const int threads : {1, 3}) {
    ThreadPool executor(threads, /*min_block_ns=*/0);
    ObjectPool<DirectScratch> scratch;
    std::atomic<bool> gave_up{true};
    const LookupBags& lookup = group.plan.lookups[0];
    ASSERT_TRUE(ReadDirectly(executor, *group.tables[0], lookup,
                             Span<const int64_t>(group.ids[0]).subspan(0, lookup.count), group.output_rows[0],
                             OutputStores::kCached, &scratch, &gave_up)
                    .ok());
    EXPECT_TRUE(gave_up);
    EXPECT_TRUE(std::all_of(group.outputs[0].begin(), group.outputs[0].end(),
                            [](float value) { return std::isnan(value); }));
  }
}

// Outputs of more than 16 MiB, of whole cache lines, are written past the caches, with and without training.
TEST(LargeGroupTest, LargeOutputsAreTheSame) {
  constexpr int64_t kIds = 70000;
  for (const int64_t stride : {64, 80, 67}) {
    Group group;
    group.AddTable(64);
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < kIds; ++i) ids.push_back(i * i % 30011);
    AddGathered(&group, 0, ids);
    StatusOr<PageBuffer> memory = PageBuffer::Allocate(kIds * stride * static_cast<int64_t>(sizeof(float)));
    ASSERT_TRUE(memory.ok());
    const OutputRows output = {static_cast<float*>(memory.value().data()), stride};
    const ReferenceRows rows = group.Rows(0);
    const std::vector<Table*> tables = group.table_pointers();
    for (const bool training : {false, true, false}) {
      group.plan.training = training;
      std::fill(output.data, output.data + kIds * stride, 77.0f);
      ThreadPool executor(2);
      GroupScratch scratch;
      ASSERT_TRUE(GroupForward(executor, tables, group.IdViews(), &group.plan, {&output, 1}, &scratch).ok());
      for (int64_t i = 0; i < kIds; ++i) {
        const float* const row = output.data + i * stride;
        ASSERT_TRUE(std::equal(row, row + 64, rows.at(ids[i]).begin())) << i;
        for (int64_t gap = 64; gap < stride; ++gap) ASSERT_EQ(row[gap], 77.0f) << i;
      }
    }
  }
}

}  // namespace
}  // namespace sok
