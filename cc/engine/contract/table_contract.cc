// Single tables: creation, description, assigned and erased rows.
#include <map>
#include <random>
#include <set>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/lookup_reference.h"
#include "cc/engine/contract/suites.h"

namespace sok {
namespace {

SOK_CONTRACT_SUITE(TableContract);
SOK_CONTRACT_SUITE(EraseContract);

TEST_P(TableContract, BadOptionsAreRefusedByName) {
  InlineExecutor executor;
  const EngineContext context{executor, GetParam().memory->stream()};
  TableOptions no_dim = ContractOptions("flat", 0);
  ExpectNames(GetParam().engine->MakeTable(context, no_dim).status(), StatusCode::kInvalidArgument,
              {"'flat'", "0"});
  TableOptions negative = ContractOptions("negative", 4, -3);
  ExpectNames(GetParam().engine->MakeTable(context, negative).status(), StatusCode::kInvalidArgument,
              {"'negative'", "-3"});
  TableOptions unbounded = ContractOptions("unbounded", 4);
  unbounded.use_hashtable = false;
  ExpectNames(GetParam().engine->MakeTable(context, unbounded).status(), StatusCode::kInvalidArgument,
              {"'unbounded'"});
}

TEST_P(TableContract, ANewTableIsEmptyAndBelongsToItsEngine) {
  InlineExecutor executor;
  ContractGroup group(GetParam(), executor, {ContractOptions("fresh", 4)});
  EXPECT_EQ(&group.table(0).engine(), GetParam().engine);
  EXPECT_EQ(group.table(0).options().name, "fresh");
  const TableDescription description = group.table(0).Describe();
  EXPECT_EQ(description.rows, 0);
  EXPECT_EQ(description.steps, 0);
  EXPECT_EQ(description.optimizer, "");
}

TEST_P(TableContract, UnseenKeysReadAsTheirInitialRows) {
  InlineExecutor executor;
  for (const int64_t dim : {1, 2, 16, 17, 100, 1025}) {
    const TableOptions options = ContractOptions("table", dim);
    ContractGroup group(GetParam(), executor, {options});
    std::vector<int64_t> keys = HostileIds();
    keys.push_back(12345);
    for (const auto& [key, row] : group.Rows(0, keys))
      EXPECT_EQ(row, ReferenceInitialRow(options, key)) << key;
    EXPECT_EQ(group.table(0).Describe().rows, 0);
  }
}

TEST_P(TableContract, AssignedRowsAreReadBack) {
  InlineExecutor executor;
  const TableOptions options = ContractOptions("table", 3);
  ContractGroup group(GetParam(), executor, {options});
  std::map<int64_t, std::vector<float>> expected;
  std::mt19937_64 random(3);
  std::vector<int64_t> pool = DistinctIds(500, 3);
  for (const int64_t id : HostileIds()) pool.push_back(id);
  for (int round = 0; round < 10; ++round) {
    std::vector<int64_t> keys;
    std::vector<float> values;
    for (const int64_t id : std::set<int64_t>(pool.begin(), pool.end())) {
      if (random() % 4 != 0) continue;
      keys.push_back(id);
      for (int c = 0; c < 3; ++c) values.push_back(static_cast<float>(random() % 1000));
      expected[id].assign(values.end() - 3, values.end());
    }
    ASSERT_TRUE(group.Assign(0, keys, values).ok());
  }
  EXPECT_EQ(group.table(0).Describe().rows, static_cast<int64_t>(expected.size()));
  for (const auto& [key, row] : group.Rows(0, pool)) {
    EXPECT_EQ(row, expected.count(key) == 1 ? expected[key] : ReferenceInitialRow(options, key)) << key;
  }
}

TEST_P(TableContract, AssignRefusesARepeatedKeyAndTooManyKeys) {
  InlineExecutor executor;
  ContractGroup group(GetParam(), executor, {ContractOptions("table", 1, /*capacity=*/2)});
  ExpectNames(group.Assign(0, {7, 8, 7}, {1.0f, 2.0f, 3.0f}), StatusCode::kInvalidArgument, {"'table'", "7"});
  EXPECT_EQ(group.table(0).Describe().rows, 0);
  ExpectNames(group.Assign(0, {7, 8, 9}, {1.0f, 2.0f, 3.0f}), StatusCode::kResourceExhausted,
              {"'table'", "2"});
  EXPECT_EQ(group.table(0).Describe().rows, 0);
  ASSERT_TRUE(group.Assign(0, {}, {}).ok());
}

TEST_P(EraseContract, RandomInsertionsAndErasuresEqualAMap) {
  InlineExecutor executor;
  const TableOptions options = ContractOptions("table", 2);
  ContractGroup group(GetParam(), executor, {options});
  std::map<int64_t, std::vector<float>> expected;
  std::mt19937_64 random(11);
  std::vector<int64_t> pool = DistinctIds(300, 5);
  for (const int64_t id : HostileIds()) pool.push_back(id);
  for (int round = 0; round < 40; ++round) {
    std::set<int64_t> picked;
    for (uint64_t i = random() % 60; i > 0; --i) picked.insert(pool[random() % pool.size()]);
    const std::vector<int64_t> keys(picked.begin(), picked.end());
    if (round % 2 == 0) {
      std::vector<float> values;
      for (const int64_t key : keys) {
        const float value = static_cast<float>(random() % 10000);
        values.insert(values.end(), {value, -value});
        expected[key] = {value, -value};
      }
      ASSERT_TRUE(group.Assign(0, keys, values).ok());
    } else {
      int64_t erased = -1;
      int64_t there = 0;
      for (const int64_t key : keys) there += static_cast<int64_t>(expected.erase(key));
      ASSERT_TRUE(group.Erase(0, keys, &erased).ok());
      ASSERT_EQ(erased, there);
    }
    ASSERT_EQ(group.table(0).Describe().rows, static_cast<int64_t>(expected.size()));
  }
  for (const auto& [key, row] : group.Rows(0, pool)) {
    EXPECT_EQ(row, expected.count(key) == 1 ? expected[key] : ReferenceInitialRow(options, key)) << key;
  }
}

TEST_P(StaticContract, NoRowCanBeErased) {
  InlineExecutor executor;
  TableOptions options = ContractOptions("direct", 2, /*capacity=*/4);
  options.use_hashtable = false;
  ContractGroup group(GetParam(), executor, {options});
  int64_t erased = 0;
  ExpectNames(group.Erase(0, {1}, &erased), StatusCode::kInvalidArgument, {"'direct'"});
}

}  // namespace
}  // namespace sok
