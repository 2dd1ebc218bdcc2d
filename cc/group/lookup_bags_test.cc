#include "cc/group/lookup_bags.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/group/testing/random_group.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

// The arrays of a lookup's input, as its caller has them.
struct Arrays {
  LookupSpec spec;
  std::vector<int64_t> ids64;
  std::vector<int32_t> ids32;
  std::vector<uint32_t> ids_unsigned;
  KeyType key_type = KeyType::kInt64;
  int64_t num_bags = 0;
  std::vector<int64_t> indices;
  std::vector<int64_t> row_splits;
  std::vector<float> weights;
  std::vector<int64_t> weight_places;

  int64_t num_ids() const { return static_cast<int64_t>(ids64.size() + ids32.size() + ids_unsigned.size()); }

  int64_t id(int64_t i) const {
    return key_type == KeyType::kInt64   ? ids64[i]
           : key_type == KeyType::kInt32 ? int64_t{ids32[i]}
                                         : int64_t{ids_unsigned[i]};
  }

  LookupInput input() const {
    LookupInput input;
    input.ids = key_type == KeyType::kInt64   ? static_cast<const void*>(ids64.data())
                : key_type == KeyType::kInt32 ? static_cast<const void*>(ids32.data())
                                              : static_cast<const void*>(ids_unsigned.data());
    input.key_type = key_type;
    input.num_ids = num_ids();
    input.num_bags = num_bags;
    input.indices = indices.data();
    input.row_splits = row_splits.data();
    input.weights = weights.data();
    input.weight_places = weight_places.empty() ? nullptr : weight_places.data();
    return input;
  }
};

Arrays Sparse(int64_t num_bags, const std::vector<int64_t>& rows, const std::vector<int64_t>& ids) {
  Arrays arrays;
  arrays.spec.layout = IdLayout::kSparse;
  arrays.num_bags = num_bags;
  arrays.ids64 = ids;
  for (size_t i = 0; i < rows.size(); ++i) {
    arrays.indices.push_back(rows[i]);
    arrays.indices.push_back(static_cast<int64_t>(i));
  }
  return arrays;
}

Arrays Ragged(const std::vector<int64_t>& row_splits, const std::vector<int64_t>& ids) {
  Arrays arrays;
  arrays.spec.layout = IdLayout::kRagged;
  arrays.num_bags = static_cast<int64_t>(row_splits.size()) - 1;
  arrays.row_splits = row_splits;
  arrays.ids64 = ids;
  return arrays;
}

Arrays Dense(const std::vector<int64_t>& ids) {
  Arrays arrays;
  arrays.ids64 = ids;
  return arrays;
}

Arrays Weighted(Arrays arrays, const std::vector<float>& weights) {
  arrays.spec.weighted = true;
  arrays.weights = weights;
  return arrays;
}

// A group of such lookups in some tables, and the results of BuildBags.
struct Built {
  std::vector<std::unique_ptr<Table>> tables;
  LookupPlan plan;
  GroupIds ids;

  explicit Built(int num_tables) {
    for (int t = 0; t < num_tables; ++t) tables.push_back(MakeTable("table" + std::to_string(t), 4));
  }

  Status Build(Executor& executor, const std::vector<Arrays>& group) {
    std::vector<Table*> pointers;
    for (const auto& table : tables) pointers.push_back(table.get());
    std::vector<LookupSpec> specs;
    std::vector<LookupInput> inputs;
    for (const Arrays& arrays : group) {
      specs.push_back(arrays.spec);
      inputs.push_back(arrays.input());
    }
    return BuildBags(executor, pointers, specs, inputs, &plan, &ids);
  }
};

// One id of a bag: where the caller gave it, its value and its weight.
struct Occurrence {
  int64_t given;
  int64_t id;
  float weight;
  bool operator==(const Occurrence& other) const {
    return given == other.given && id == other.id && weight == other.weight;
  }
};
using Bags = std::vector<std::vector<Occurrence>>;

// The bags of the arrays, built one id at a time. Without bags each id is a bag.
Bags ReferenceBags(const Arrays& arrays) {
  Bags bags(arrays.spec.pooled() ? arrays.num_bags : arrays.num_ids());
  for (int64_t i = 0; i < arrays.num_ids(); ++i) {
    int64_t bag = i;
    if (arrays.spec.layout == IdLayout::kSparse) bag = arrays.indices[2 * i];
    if (arrays.spec.layout == IdLayout::kRagged) {
      bag = 0;
      while (arrays.row_splits[bag + 1] <= i) ++bag;
    }
    const float weight = arrays.spec.weighted ? arrays.weights[i] : 1.0f;
    if (arrays.spec.positive_weights_only && !(weight > 0.0f)) continue;
    bags[bag].push_back({i, arrays.id(i), weight});
  }
  return bags;
}

// The bags of the plan.
Bags BagsOf(const Built& built, int l) {
  const Lookup& lookup = built.plan.lookups[l];
  const Span<const int64_t> ids = built.ids.views[lookup.table];
  Bags bags(lookup.num_bags());
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

void ExpectAsReference(const Built& built, const std::vector<Arrays>& group) {
  ASSERT_EQ(built.plan.lookups.size(), group.size());
  std::vector<int64_t> ids_of(built.tables.size(), 0);
  for (int l = 0; l < static_cast<int>(group.size()); ++l) {
    const Lookup& lookup = built.plan.lookups[l];
    EXPECT_EQ(lookup.table, group[l].spec.table);
    EXPECT_EQ(lookup.combiner, group[l].spec.combiner);
    EXPECT_EQ(lookup.given, group[l].num_ids());
    EXPECT_EQ(lookup.first, ids_of[lookup.table]);
    ids_of[lookup.table] += lookup.count;
    EXPECT_TRUE(BagsOf(built, l) == ReferenceBags(group[l])) << "lookup " << l;
  }
  for (size_t t = 0; t < built.tables.size(); ++t) EXPECT_EQ(built.ids.views[t].size(), ids_of[t]);
}

Arrays RandomArrays(std::mt19937* random, int num_tables) {
  const auto below = [&](uint32_t n) { return static_cast<int64_t>((*random)() % n); };
  const int64_t num_bags = below(4) == 0 ? below(3) : below(60);
  std::vector<int64_t> rows;
  for (int64_t bag = 0; bag < num_bags; ++bag) rows.insert(rows.end(), below(5), bag);
  if (below(2) == 0) std::shuffle(rows.begin(), rows.end(), *random);
  std::vector<int64_t> splits = {0};
  for (int64_t bag = 0; bag < num_bags; ++bag) {
    splits.push_back(splits.back() + std::count(rows.begin(), rows.end(), bag));
  }
  const std::vector<int64_t> hostile = {0, -1, std::numeric_limits<int64_t>::max(),
                                        std::numeric_limits<int64_t>::min()};
  std::vector<int64_t> ids(rows.size());
  for (int64_t& id : ids) id = below(5) == 0 ? hostile[below(4)] : below(50);
  const int64_t layout = below(3);
  Arrays arrays = layout == 0 ? Sparse(num_bags, rows, ids) : layout == 1 ? Ragged(splits, ids) : Dense(ids);
  arrays.spec.table = static_cast<int>(below(num_tables));
  arrays.spec.combiner = below(2) == 0 ? Combiner::kMean : Combiner::kSqrtN;
  arrays.spec.keeps_bags = below(2) == 0;
  if (arrays.spec.pooled() && below(2) == 0) {
    std::vector<float> weights(ids.size());
    for (float& weight : weights) weight = static_cast<float>(below(9)) - 3.0f;
    arrays = Weighted(std::move(arrays), weights);
    arrays.spec.positive_weights_only = below(2) == 0;
    if (below(2) == 0) arrays.weight_places = layout == 0 ? arrays.indices : arrays.row_splits;
  }
  arrays.key_type = below(2) == 0 ? KeyType::kInt64 : below(2) == 0 ? KeyType::kInt32 : KeyType::kUint32;
  if (arrays.key_type == KeyType::kInt32) arrays.ids32.assign(ids.begin(), ids.end());
  if (arrays.key_type == KeyType::kUint32) arrays.ids_unsigned.assign(ids.begin(), ids.end());
  if (arrays.key_type != KeyType::kInt64) arrays.ids64.clear();
  return arrays;
}

TEST(LookupBags, RandomGroupsEqualTheReference) {
  InlineExecutor one_thread;
  ThreadPool four_threads(4);
  Executor* const executors[] = {&one_thread, &four_threads};
  Built used_again(3);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<Arrays> group;
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
  const std::vector<Arrays> group = {Sparse(0, {}, {}), Sparse(3, {}, {}), Ragged({0}, {}), Dense({}),
                                     Ragged({0, 0, 0}, {})};
  ASSERT_TRUE(built.Build(executor, group).ok());
  ExpectAsReference(built, group);
  EXPECT_EQ(built.plan.lookups[1].num_bags(), 3);
}

TEST(LookupBags, UnsortedIdsOfABagKeepTheirOrder) {
  InlineExecutor executor;
  Built built(1);
  ASSERT_TRUE(built.Build(executor, {Sparse(3, {2, 0, 2, 0, 2}, {10, 11, 12, 13, 14})}).ok());
  EXPECT_EQ(built.plan.lookups[0].order, (std::vector<int64_t>{1, 3, 0, 2, 4}));
  EXPECT_EQ(built.plan.lookups[0].offsets, (std::vector<int64_t>{0, 2, 2, 5}));
}

TEST(LookupBags, OneIdInEachBagInOrderIsNotPooled) {
  InlineExecutor executor;
  Built built(1);
  const std::vector<int64_t> ids = {7, 7, 5};
  Arrays keeps = Sparse(3, {0, 1, 2}, ids);
  keeps.spec.keeps_bags = true;
  const std::vector<Arrays> group = {Sparse(3, {0, 1, 2}, ids),
                                     Ragged({0, 1, 2, 3}, ids),
                                     Sparse(3, {0, 2, 1}, ids),
                                     Ragged({0, 2, 2, 3}, ids),
                                     Weighted(Ragged({0, 1, 2, 3}, ids), {1, 2, 3}),
                                     keeps};
  ASSERT_TRUE(built.Build(executor, group).ok());
  ExpectAsReference(built, group);
  const std::vector<bool> pooled = {false, false, true, true, true, true};
  for (size_t l = 0; l < group.size(); ++l) EXPECT_EQ(built.plan.lookups[l].pooled, pooled[l]) << l;
}

TEST(LookupBags, OrderedIdsOfASingleLookupAreNotCopied) {
  InlineExecutor executor;
  Built built(4);
  std::vector<Arrays> group = {Ragged({0, 2, 3}, {1, 2, 3}), Sparse(2, {1, 0}, {1, 2}), Dense({1}),
                               Dense({2}), Dense({})};
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
  Arrays is_signed;
  is_signed.key_type = KeyType::kInt32;
  is_signed.ids32 = {-1, std::numeric_limits<int32_t>::min()};
  Arrays is_unsigned;
  is_unsigned.spec.table = 1;
  is_unsigned.key_type = KeyType::kUint32;
  is_unsigned.ids_unsigned = {0xffffffffu, 0x80000000u};
  ASSERT_TRUE(built.Build(executor, {is_signed, is_unsigned}).ok());
  EXPECT_EQ(built.ids.copies[0], (std::vector<int64_t>{-1, -2147483648}));
  EXPECT_EQ(built.ids.copies[1], (std::vector<int64_t>{4294967295, 2147483648}));
}

// The error of BuildBags for a group in one table, without the prefix that names the table.
std::string ErrorOf(const std::vector<Arrays>& group) {
  InlineExecutor executor;
  Built built(1);
  const Status status = built.Build(executor, group);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  const std::string prefix = "Lookup in embedding variable 'table0': ";
  EXPECT_EQ(status.message().substr(0, prefix.size()), prefix);
  return status.ok() ? "" : status.message().substr(prefix.size());
}

TEST(LookupBags, IndicesBeyondTheBagsAreAnError) {
  const std::pair<int64_t, std::string> cases[] = {
      {3, "3"}, {-1, "-1"}, {std::numeric_limits<int64_t>::min(), "-9223372036854775808"}};
  for (const auto& [row, text] : cases) {
    EXPECT_EQ(ErrorOf({Sparse(3, {0, row}, {1, 1})}),
              "index 1 of the sparse ids is in row " + text + " of 3");
  }
  EXPECT_EQ(ErrorOf({Sparse(0, {0}, {1})}), "index 0 of the sparse ids is in row 0 of 0");
}

TEST(LookupBags, BadRowSplitsAreAnError) {
  EXPECT_EQ(ErrorOf({Ragged({1, 3}, {1, 2, 3})}), "row_splits begin with 1, not 0");
  EXPECT_EQ(ErrorOf({Ragged({0, 2, 1, 3}, {1, 2, 3})}), "row_splits fall from 2 to 1 at position 2");
  EXPECT_EQ(ErrorOf({Ragged({0, 2}, {1, 2, 3})}), "row_splits end with 2, but there are 3 ids");
  EXPECT_EQ(ErrorOf({Ragged({0, 9}, {1, 2, 3})}), "row_splits end with 9, but there are 3 ids");
  EXPECT_EQ(ErrorOf({Ragged({0}, {1})}), "row_splits end with 0, but there are 1 ids");
}

TEST(LookupBags, WeightsThatAreNotFiniteAreAnError) {
  EXPECT_EQ(ErrorOf({Weighted(Ragged({0, 2}, {1, 2}), {1, std::numeric_limits<float>::infinity()})}),
            "weight 1 is inf");
  EXPECT_EQ(ErrorOf({Weighted(Ragged({0, 2}, {1, 2}), {std::nanf(""), 1})}), "weight 0 is nan");
}

TEST(LookupBags, WeightsAtOtherPlacesThanTheirIdsAreAnError) {
  Arrays sparse = Weighted(Sparse(2, {0, 1}, {1, 2}), {1, 1});
  sparse.weight_places = {0, 0, 1, 7};
  EXPECT_EQ(
      ErrorOf({sparse}),
      "the weights are not at the places of the ids: element 3 of their indices is 7, but that of the ids "
      "is 1");
  Arrays ragged = Weighted(Ragged({0, 1, 2}, {1, 2}), {1, 1});
  ragged.weight_places = {0, 2, 2};
  EXPECT_EQ(
      ErrorOf({ragged}),
      "the weights are not at the places of the ids: element 1 of their row_splits is 2, but that of the "
      "ids is 1");
}

TEST(LookupBags, TheErrorIsThatOfTheFirstLookup) {
  ThreadPool executor(4);
  Built built(8);
  std::vector<Arrays> group;
  for (int l = 0; l < 8; ++l) {
    group.push_back(Sparse(1, {l < 3 ? 0 : l}, {1}));
    group.back().spec.table = l;
  }
  EXPECT_EQ(built.Build(executor, group).message(),
            "Lookup in embedding variable 'table3': index 0 of the sparse ids is in row 3 of 1");
}

}  // namespace
}  // namespace sok
