#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/cpu/group/group_lookup.h"
#include "cc/cpu/group/testing/random_group.h"
#include "cc/lookup/testing/lookup_arrays.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

// A group of lookups in some tables, and what BuildBags makes of it.
struct Built {
  std::vector<std::unique_ptr<Table>> tables;
  LookupPlan plan;
  GroupIds ids;

  explicit Built(int num_tables) {
    for (int t = 0; t < num_tables; ++t) tables.push_back(MakeTable("table" + std::to_string(t), 4));
  }

  Status Build(Executor& executor, const std::vector<LookupArrays>& group) {
    std::vector<Table*> pointers;
    for (const auto& table : tables) pointers.push_back(table.get());
    std::vector<LookupSpec> specs;
    std::vector<LookupInput> inputs;
    for (const LookupArrays& arrays : group) {
      specs.push_back(arrays.spec);
      inputs.push_back(arrays.input());
    }
    return BuildBags(executor, pointers, specs, inputs, &plan, &ids);
  }
};

// The bags that the plan describes.
ReferenceBagList BagsOf(const Built& built, int l) {
  const LookupBags& lookup = built.plan.lookups[l];
  const Span<const int64_t> ids = built.ids.views[lookup.table];
  ReferenceBagList bags(lookup.num_bags());
  for (int64_t bag = 0; bag < lookup.num_bags(); ++bag) {
    const int64_t begin = lookup.pooled ? lookup.offsets[bag] : bag;
    const int64_t end = lookup.pooled ? lookup.offsets[bag + 1] : bag + 1;
    for (int64_t i = begin; i < end; ++i) {
      bags[bag].push_back({lookup.order.empty() ? i : lookup.order[i], ids[lookup.first + i],
                           lookup.weights.empty() ? 1.0f : lookup.weights[i]});
    }
  }
  return bags;
}

void ExpectAsReference(const Built& built, const std::vector<LookupArrays>& group) {
  ASSERT_EQ(built.plan.lookups.size(), group.size());
  std::vector<int64_t> ids_of(built.tables.size(), 0);
  for (int l = 0; l < static_cast<int>(group.size()); ++l) {
    const LookupBags& lookup = built.plan.lookups[l];
    EXPECT_EQ(lookup.table, group[l].spec.table);
    EXPECT_EQ(lookup.combiner, group[l].spec.combiner);
    EXPECT_EQ(lookup.given, group[l].num_ids());
    EXPECT_EQ(lookup.first, ids_of[lookup.table]);
    ids_of[lookup.table] += lookup.count;
    EXPECT_TRUE(BagsOf(built, l) == ReferenceBags(group[l])) << "lookup " << l;
  }
  for (size_t t = 0; t < built.tables.size(); ++t) EXPECT_EQ(built.ids.views[t].size(), ids_of[t]);
}

TEST(LookupBags, RandomGroupsAreAsTheReferenceSays) {
  InlineExecutor one_thread;
  ThreadPool four_threads(4);
  Executor* const executors[] = {&one_thread, &four_threads};
  Built used_again(3);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<LookupArrays> group;
    for (uint32_t l = 0; l <= random() % 6; ++l) group.push_back(RandomArrays(&random, 3));
    SCOPED_TRACE(seed);
    const Status status = used_again.Build(*executors[seed % 2], group);
    ASSERT_TRUE(status.ok()) << status.message();
    ExpectAsReference(used_again, group);
    if (HasFailure()) break;
  }
}

TEST(LookupBags, EmptyLookupsHaveNoIds) {
  InlineExecutor executor;
  Built built(1);
  const std::vector<LookupArrays> group = {SparseArrays(0, {}, {}), SparseArrays(3, {}, {}),
                                           RaggedArrays({0}, {}), DenseArrays({}),
                                           RaggedArrays({0, 0, 0}, {})};
  ASSERT_TRUE(built.Build(executor, group).ok());
  ExpectAsReference(built, group);
  EXPECT_EQ(built.plan.lookups[1].num_bags(), 3);
}

TEST(LookupBags, UnsortedIdsOfABagKeepTheirOrder) {
  InlineExecutor executor;
  Built built(1);
  ASSERT_TRUE(built.Build(executor, {SparseArrays(3, {2, 0, 2, 0, 2}, {10, 11, 12, 13, 14})}).ok());
  EXPECT_EQ(built.plan.lookups[0].order, (std::vector<int64_t>{1, 3, 0, 2, 4}));
  EXPECT_EQ(built.plan.lookups[0].offsets, (std::vector<int64_t>{0, 2, 2, 5}));
}

TEST(LookupBags, OneIdInEachBagInOrderIsNotPooled) {
  InlineExecutor executor;
  Built built(1);
  const std::vector<int64_t> ids = {7, 7, 5};
  LookupArrays keeps = SparseArrays(3, {0, 1, 2}, ids);
  keeps.spec.keeps_bags = true;
  const std::vector<LookupArrays> group = {SparseArrays(3, {0, 1, 2}, ids),
                                           RaggedArrays({0, 1, 2, 3}, ids),
                                           SparseArrays(3, {0, 2, 1}, ids),
                                           RaggedArrays({0, 2, 2, 3}, ids),
                                           WithWeights(RaggedArrays({0, 1, 2, 3}, ids), {1, 2, 3}),
                                           keeps};
  ASSERT_TRUE(built.Build(executor, group).ok());
  ExpectAsReference(built, group);
  const std::vector<bool> pooled = {false, false, true, true, true, true};
  for (size_t l = 0; l < group.size(); ++l) EXPECT_EQ(built.plan.lookups[l].pooled, pooled[l]) << l;
}

TEST(LookupBags, OrderedIdsOfASingleLookupAreNotCopied) {
  InlineExecutor executor;
  Built built(4);
  std::vector<LookupArrays> group = {RaggedArrays({0, 2, 3}, {1, 2, 3}), SparseArrays(2, {1, 0}, {1, 2}),
                                     DenseArrays({1}), DenseArrays({2}), DenseArrays({})};
  group[4].key_type = KeyType::kInt32;
  group[4].ids32 = {5};
  const int table_of[] = {0, 1, 2, 2, 3};
  for (size_t l = 0; l < group.size(); ++l) group[l].spec.table = table_of[l];
  ASSERT_TRUE(built.Build(executor, group).ok());
  ExpectAsReference(built, group);
  EXPECT_EQ(built.ids.views[0].data(), group[0].ids64.data());
  for (int t = 1; t < 4; ++t) EXPECT_EQ(built.ids.views[t].data(), built.ids.copies[t].data()) << t;
}

TEST(LookupBags, NarrowKeysAreWidenedByTheirSign) {
  InlineExecutor executor;
  Built built(2);
  LookupArrays is_signed;
  is_signed.key_type = KeyType::kInt32;
  is_signed.ids32 = {-1, std::numeric_limits<int32_t>::min()};
  LookupArrays is_unsigned;
  is_unsigned.spec.table = 1;
  is_unsigned.key_type = KeyType::kUint32;
  is_unsigned.ids_unsigned = {0xffffffffu, 0x80000000u};
  ASSERT_TRUE(built.Build(executor, {is_signed, is_unsigned}).ok());
  EXPECT_EQ(built.ids.copies[0], (std::vector<int64_t>{-1, -2147483648}));
  EXPECT_EQ(built.ids.copies[1], (std::vector<int64_t>{4294967295, 2147483648}));
}

// What BuildBags says about a lookup in one table.
std::string ErrorOf(const LookupArrays& lookup) {
  InlineExecutor executor;
  const Status status = Built(1).Build(executor, {lookup});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  const std::string prefix = "Lookup in embedding variable 'table0': ";
  EXPECT_EQ(status.message().substr(0, prefix.size()), prefix);
  return status.ok() ? "" : status.message().substr(prefix.size());
}

TEST(LookupBags, ErrorsNameThePlaceAndTheValue) {
  for (const BagsError& error : AllBagsErrors()) EXPECT_EQ(ErrorOf(error.lookup), error.text);
}

TEST(LookupBags, TheErrorIsThatOfTheFirstLookup) {
  ThreadPool executor(4);
  Built built(8);
  EXPECT_EQ(built.Build(executor, GroupWithErrors()).message(), kErrorOfGroup);
}

}  // namespace
}  // namespace sok
