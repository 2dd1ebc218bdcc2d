// Bags equal those of a plain loop, and errors equal the CPU engine's, word by word.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/executor.h"
#include "cc/cpu/dedup/testing/dedup_reference.h"
#include "cc/cpu/group/group_lookup.h"
#include "cc/cpu/group/testing/random_group.h"
#include "cc/lookup/narrow_splits.h"
#include "cc/lookup/testing/lookup_arrays.h"
#include "cuda/bags/group_bags.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/base/testing/limited_allocator.h"
#include "cuda/dedup/dedup.h"

namespace sok {
namespace {

// A lookup's arrays in device memory.
class DeviceLookup {
 public:
  // `narrow`: with narrow splits if these say the same.
  DeviceLookup(const LookupArrays& arrays, bool narrow)
      : ids64_(arrays.ids64),
        ids32_(arrays.ids32),
        ids_unsigned_(arrays.ids_unsigned),
        indices_(arrays.indices),
        row_splits_(arrays.row_splits),
        weights_(arrays.weights),
        weight_places_(arrays.weight_places),
        narrow_splits_(narrow ? NarrowSplits(arrays) : std::vector<int32_t>()),
        input_(arrays.input()) {
    input_.ids = arrays.key_type == KeyType::kInt64   ? static_cast<const void*>(ids64_.data())
                 : arrays.key_type == KeyType::kInt32 ? static_cast<const void*>(ids32_.data())
                                                      : static_cast<const void*>(ids_unsigned_.data());
    input_.indices = indices_.data();
    input_.row_splits = row_splits_.data();
    input_.weights = weights_.data();
    if (input_.weight_places != nullptr) input_.weight_places = weight_places_.data();
    if (narrow_splits_.Fetch().empty()) return;
    input_.narrow_splits = narrow_splits_.data();
    input_.indices = input_.row_splits = input_.weight_places = nullptr;
  }

  const LookupInput& input() const { return input_; }

 private:
  static std::vector<int32_t> NarrowSplits(const LookupArrays& arrays) {
    const bool is_sparse = arrays.spec.layout == IdLayout::kSparse;
    const std::vector<int64_t>& bags = is_sparse ? arrays.indices : arrays.row_splits;
    if (!arrays.weight_places.empty() && arrays.weight_places != bags) return {};
    if (!is_sparse) {
      const bool fit = AreNarrow(bags.data(), 0, static_cast<int64_t>(bags.size()));
      return fit ? std::vector<int32_t>(bags.begin(), bags.end()) : std::vector<int32_t>();
    }
    const int64_t n = arrays.num_ids();
    if (n == 0 || !AreInOrder(bags.data(), 0, n, arrays.num_bags)) return {};
    std::vector<int32_t> splits(arrays.num_bags + 1);
    WriteNarrowSplits(bags.data(), 0, n, n, arrays.num_bags, splits.data());
    return splits;
  }

  DeviceArray<int64_t> ids64_;
  DeviceArray<int32_t> ids32_;
  DeviceArray<uint32_t> ids_unsigned_;
  DeviceArray<int64_t> indices_;
  DeviceArray<int64_t> row_splits_;
  DeviceArray<float> weights_;
  DeviceArray<int64_t> weight_places_;
  DeviceArray<int32_t> narrow_splits_;
  LookupInput input_;
};

template <typename T>
std::vector<T> Fetch(const T* device, int64_t n) {
  std::vector<T> values(n);
  if (n > 0) {
    EXPECT_EQ(cudaMemcpy(values.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
  }
  return values;
}

// Builds bags as an engine does: sorts lookups that turn out to need it.
class Builder {
 public:
  explicit Builder(int num_tables) {
    for (int t = 0; t < num_tables; ++t) names_.push_back("table" + std::to_string(t));
  }

  Status Build(const std::vector<LookupArrays>& group, bool narrow = false) {
    lookups_.clear();
    specs_.clear();
    inputs_.clear();
    for (const LookupArrays& arrays : group) {
      lookups_.push_back(std::make_unique<DeviceLookup>(arrays, narrow));
      specs_.push_back(arrays.spec);
      inputs_.push_back(lookups_.back()->input());
    }
    std::vector<uint8_t> sort;
    passes = 0;
    for (;;) {
      ++passes;
      SOK_RETURN_IF_ERROR(BuildOnce({names_, specs_, inputs_, sort}));
      if (!bags.needs_sort()) return OkStatus();
      if (passes == 2) return Internal("sorted, and yet unsorted");
      sort.clear();
      for (const BagsOfLookup& lookup : bags.lookups()) sort.push_back(lookup.unsorted ? 1 : 0);
    }
  }

  Status BuildOnce(const BagsInput& input) {
    DeviceArray<int64_t> report(std::vector<int64_t>(GroupBags::report_size(input), -1));
    SOK_RETURN_IF_ERROR(bags.Build(nullptr, &allocator_, &allocator_, &upload_, input, report.data()));
    SOK_RETURN_IF_ERROR(MergeDuplicates());
    SOK_ASSIGN_OR_RETURN(const int64_t* const words,
                         round_trip_.Fetch(nullptr, report.data(), GroupBags::report_size(input)));
    SOK_RETURN_IF_ERROR(bags.TakeReport(nullptr, &round_trip_, input, words));
    EXPECT_EQ(Fetch(bags.table_begin(), static_cast<int64_t>(names_.size()) + 1), bags.host_table_begin());
    return OkStatus();
  }

  int passes = 0;

  std::vector<int32_t> inverse() const { return inverse_->Fetch(); }

 private:
  // The work that an engine enqueues before it knows about errors and the number of ids that stay in their
  // bags.
  Status MergeDuplicates() {
    const int64_t n = bags.num_ids();
    inverse_ = std::make_unique<DeviceArray<int32_t>>(std::vector<int32_t>(n, -1));
    DeviceArray<int32_t> position(std::vector<int32_t>(n, -1));
    DeviceArray<int64_t> begin(std::vector<int64_t>(names_.size() + 1, -1));
    return Dedup(nullptr, &allocator_, {bags.keys(), bags.table_begin(), static_cast<int>(names_.size()), n},
                 {begin.data(), inverse_->data(), position.data(), nullptr, nullptr});
  }

  std::vector<std::string> names_;
  std::vector<std::unique_ptr<DeviceLookup>> lookups_;
  std::vector<LookupSpec> specs_;
  std::vector<LookupInput> inputs_;
  AsyncAllocator allocator_;
  StagedUpload upload_;
  RoundTrip round_trip_;
  std::unique_ptr<DeviceArray<int32_t>> inverse_;

 public:
  GroupBags bags;  // freed before the allocator
};

// The arrays of all occurrences, on the host.
struct HostBags {
  explicit HostBags(const GroupBags& bags) : n(bags.host_table_begin().back()), keys(Fetch(bags.keys(), n)) {
    for (const BagsOfLookup& lookup : bags.lookups()) {
      if (lookup.weighted) weights = Fetch(bags.weights(), n);
      if (lookup.has_order) order = Fetch(bags.order(), n);
    }
  }

  int64_t n;
  std::vector<int64_t> keys;
  std::vector<float> weights;
  std::vector<int32_t> order;
};

// The bags that the arrays on the device describe.
ReferenceBagList BagsOf(const HostBags& host, const BagsOfLookup& lookup) {
  std::vector<int32_t> begins;
  if (lookup.pooled) begins = Fetch(lookup.bag_begin, lookup.num_bags + 1);
  ReferenceBagList bags(lookup.num_bags);
  if (!std::is_sorted(begins.begin(), begins.end()) ||
      (lookup.pooled && (begins.front() != lookup.begin || begins.back() != lookup.end))) {
    ADD_FAILURE() << "bags begin with " << begins.front() << " and end with " << begins.back();
    return bags;
  }
  for (int64_t bag = 0; bag < lookup.num_bags; ++bag) {
    const int64_t begin = lookup.pooled ? begins[bag] : lookup.begin + bag;
    const int64_t end = lookup.pooled ? begins[bag + 1] : begin + 1;
    for (int64_t p = begin; p < end; ++p) {
      bags[bag].push_back({lookup.has_order ? host.order[p] : p - lookup.begin, host.keys[p],
                           lookup.weighted ? host.weights[p] : 1.0f});
    }
  }
  return bags;
}

bool Rises(const LookupArrays& arrays) {
  for (int64_t i = 1; i < arrays.num_ids(); ++i) {
    if (arrays.indices[2 * i] < arrays.indices[2 * i - 2]) return false;
  }
  return true;
}

// Whether bag b consists of id b alone, for all bags.
bool IsOneEach(const LookupArrays& arrays) {
  if (!arrays.spec.pooled() || arrays.spec.weighted || arrays.num_bags != arrays.num_ids()) return false;
  const ReferenceBagList bags = ReferenceBags(arrays);
  for (int64_t b = 0; b < arrays.num_bags; ++b) {
    if (bags[b].size() != 1 || bags[b][0].given != b) return false;
  }
  return true;
}

void ExpectAsReference(const GroupBags& bags, const std::vector<LookupArrays>& group, int num_tables) {
  ASSERT_EQ(bags.lookups().size(), group.size());
  const HostBags host(bags);
  std::vector<int64_t> table_begin = {0};
  int64_t before = 0;  // occurrences of the lookups before
  for (int t = 0; t < num_tables; ++t) {
    for (size_t l = 0; l < group.size(); ++l) {
      if (group[l].spec.table != t) continue;
      SCOPED_TRACE(testing::Message() << "lookup " << l);
      const BagsOfLookup& lookup = bags.lookups()[l];
      EXPECT_EQ(lookup.table, t);
      EXPECT_EQ(lookup.combiner, group[l].spec.combiner);
      EXPECT_EQ(lookup.given, group[l].num_ids());
      EXPECT_EQ(lookup.begin, before);
      EXPECT_EQ(lookup.one_each, IsOneEach(group[l]));
      EXPECT_EQ(lookup.unsorted, group[l].spec.layout == IdLayout::kSparse && !Rises(group[l]));
      const ReferenceBagList expected = ReferenceBags(group[l]);
      ASSERT_TRUE(BagsOf(host, lookup) == expected);
      int64_t longest = 0;
      for (const auto& bag : expected) {
        before += static_cast<int64_t>(bag.size());
        longest = std::max(longest, static_cast<int64_t>(bag.size()));
      }
      const bool must_report = lookup.pooled && longest >= kIdsOfLongBag;
      EXPECT_TRUE(lookup.has_long_bag || !must_report);
      // With weights, ids may have been left out.
      EXPECT_FALSE(lookup.has_long_bag && !lookup.weighted && longest <= kIdsOfLongBag / 2);
      EXPECT_EQ(lookup.end, before);
    }
    table_begin.push_back(before);
  }
  EXPECT_EQ(bags.host_table_begin(), table_begin);
}

// The distinct ids of each table are those of its occurrences.
void ExpectInverse(const Builder& builder, int num_tables) {
  const HostBags host(builder.bags);
  const std::vector<int64_t>& begin = builder.bags.host_table_begin();
  std::vector<int32_t> expected;
  int32_t before = 0;  // distinct ids of the tables before
  for (int t = 0; t < num_tables; ++t) {
    const ReferenceUnique unique =
        ReferenceDedup(Span<const int64_t>(host.keys.data() + begin[t], begin[t + 1] - begin[t]));
    for (const int32_t u : unique.inverse) expected.push_back(before + u);
    before += static_cast<int32_t>(unique.unique.size());
  }
  std::vector<int32_t> inverse = builder.inverse();
  inverse.resize(host.n);
  EXPECT_EQ(inverse, expected);
}

void ExpectReference(const std::vector<LookupArrays>& group, int num_tables = 1) {
  for (const bool narrow : {false, true}) {
    SCOPED_TRACE(narrow);
    Builder builder(num_tables);
    const Status status = builder.Build(group, narrow);
    ASSERT_TRUE(status.ok()) << status.message();
    ExpectAsReference(builder.bags, group, num_tables);
    ExpectInverse(builder, num_tables);
  }
}

TEST(BagsTest, RandomGroupsAreAsTheReferenceSays) {
  Builder used_again(3);
  for (uint32_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<LookupArrays> group;
    for (uint32_t l = 0; l <= random() % 6; ++l) group.push_back(RandomArrays(&random, 3));
    for (const bool narrow : {false, true}) {
      const Status status = used_again.Build(group, narrow);
      ASSERT_TRUE(status.ok()) << status.message();
      ExpectAsReference(used_again.bags, group, 3);
      ExpectInverse(used_again, 3);
    }
    if (HasFailure()) break;
  }
}

// A lookup of `n` ids in `num_bags` bags of very different sizes.
LookupArrays Large(int64_t n, int64_t num_bags, bool sparse, bool sorted, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> rows(n);
  for (int64_t& row : rows) {
    const int64_t square =
        static_cast<int64_t>(random() % num_bags) * static_cast<int64_t>(random() % num_bags);
    row = square / num_bags;
  }
  if (sorted || !sparse) std::sort(rows.begin(), rows.end());
  std::vector<int64_t> ids(n);
  for (int64_t& id : ids) id = static_cast<int64_t>(random() % 1000);
  if (sparse) return SparseArrays(num_bags, rows, ids);
  std::vector<int64_t> splits(num_bags + 1, 0);
  for (const int64_t row : rows) ++splits[row + 1];
  for (int64_t b = 0; b < num_bags; ++b) splits[b + 1] += splits[b];
  return RaggedArrays(splits, ids);
}

TEST(BagsTest, SizesAroundThoseOfTiles) {
  for (const int64_t n : {1, 32, 33, 1023, 1024, 1025}) {
    SCOPED_TRACE(n);
    std::vector<LookupArrays> group;
    for (const int64_t num_bags : {n / 40 + 1, n + 500}) {
      group.push_back(Large(n, num_bags, true, true, 1));
      group.push_back(Large(n, num_bags, false, true, 2));
    }
    group.push_back(Large(n, n / 3 + 1, true, false, 3));
    ExpectReference(group);
  }
}

TEST(BagsTest, LongBagsAreReported) {
  for (const int64_t first : {0, 1, 511, 512, 513, 1500}) {
    for (const int64_t length : {512, 1023, 1024, 1500}) {
      SCOPED_TRACE(testing::Message() << length << " ids after " << first);
      const std::vector<int64_t> ids(first + length + 7, 5);
      std::vector<int64_t> rows(first, 0);
      std::iota(rows.begin(), rows.end(), 0);
      rows.insert(rows.end(), length, 2000);
      rows.insert(rows.end(), 7, 2001);
      ExpectReference(
          {RaggedArrays({0, first, first + length, first + length + 7}, ids), SparseArrays(2002, rows, ids)});
    }
  }
}

TEST(BagsTest, SeveralLookupsAreSortedAtOnce) {
  std::vector<LookupArrays> group;
  for (int l = 0; l < 6; ++l) {
    group.push_back(Large(200 + l, 10 * l + 2, true, l == 3, static_cast<unsigned>(l)));
    group.back().spec.table = l % 2;
  }
  group.push_back(SparseArrays(0, {}, {}));
  ExpectReference(group, 2);
}

TEST(BagsTest, LargeLookupsWithoutSomeIds) {
  std::vector<LookupArrays> group;
  for (const bool sparse : {false, true}) {
    for (const bool sorted : {false, true}) {
      LookupArrays arrays = Large(1500, 200, sparse, sorted, 4);
      std::mt19937 random(5);
      std::vector<float> weights(1500);
      for (float& weight : weights) weight = static_cast<float>(random() % 5) - 2.0f;
      group.push_back(WithWeights(std::move(arrays), weights));
      group.back().spec.positive_weights_only = true;
      group.back().weight_places = sparse ? group.back().indices : group.back().row_splits;
      group.back().spec.table = sorted ? 0 : 1;
    }
  }
  group.push_back(DenseArrays({1, 2, 3}));
  ExpectReference(group, 2);
}

TEST(BagsTest, LongRunsOfEmptyBagsBeginWhereTheyBelong) {
  ExpectReference({SparseArrays(3000, {5, 5, 40, 41, 2500}, {1, 2, 3, 4, 5}), SparseArrays(700, {}, {}),
                   SparseArrays(5000, {4999}, {9}), SparseArrays(5000, {0}, {8})});
}

TEST(BagsTest, EmptyLookupsHaveNoIds) {
  ExpectReference({SparseArrays(0, {}, {}), SparseArrays(3, {}, {}), RaggedArrays({0}, {}), DenseArrays({}),
                   RaggedArrays({0, 0, 0}, {})});
  ExpectReference({}, 3);
  ExpectReference({DenseArrays({}), DenseArrays({})}, 1);
}

TEST(BagsTest, ManyLookupsOfManyTables) {
  std::vector<LookupArrays> group;
  for (int l = 0; l < 60; ++l) {
    group.push_back(l % 3 == 0   ? SparseArrays(3, {0, 0, 2}, {l, 1, 2})
                    : l % 3 == 1 ? RaggedArrays({0, 2, 2, 3}, {l, 3, 4})
                                 : DenseArrays({l, 5}));
    group.back().spec.table = (l * 7) % 50;
  }
  ExpectReference(group, 50);
}

TEST(BagsTest, NarrowKeysAreWidenedByTheirSign) {
  LookupArrays is_signed;
  is_signed.key_type = KeyType::kInt32;
  is_signed.ids32 = {-1, std::numeric_limits<int32_t>::min()};
  LookupArrays is_unsigned;
  is_unsigned.key_type = KeyType::kUint32;
  is_unsigned.ids_unsigned = {0xffffffffu, 0x80000000u};
  Builder builder(1);
  ASSERT_TRUE(builder.Build({is_signed, is_unsigned}).ok());
  EXPECT_EQ(HostBags(builder.bags).keys, (std::vector<int64_t>{-1, -2147483648, 4294967295, 2147483648}));
}

TEST(BagsTest, SortsOnlyWhatDoesNotRise) {
  Builder builder(1);
  ASSERT_TRUE(builder.Build({SparseArrays(3, {0, 0, 2}, {1, 2, 3})}).ok());
  EXPECT_EQ(builder.passes, 1);
  EXPECT_FALSE(builder.bags.lookups()[0].has_order);
  ASSERT_TRUE(
      builder.Build({SparseArrays(3, {0, 0, 2}, {1, 2, 3}), SparseArrays(3, {2, 0, 2}, {1, 2, 3})}).ok());
  EXPECT_EQ(builder.passes, 2);
  EXPECT_FALSE(builder.bags.lookups()[0].has_order);
  EXPECT_TRUE(builder.bags.lookups()[1].has_order);
}

// A caller that keeps sorting from step to step is told when it need not.
TEST(BagsTest, SortingWhatRisesChangesNothing) {
  const LookupArrays arrays = SparseArrays(4, {0, 0, 2, 3}, {1, 2, 3, 4});
  const DeviceLookup lookup(arrays, false);
  const std::vector<std::string> names = {"table0"};
  const std::vector<uint8_t> sort = {1};
  Builder builder(1);
  ASSERT_TRUE(builder
                  .BuildOnce({names, Span<const LookupSpec>(&arrays.spec, 1),
                              Span<const LookupInput>(&lookup.input(), 1), sort})
                  .ok());
  EXPECT_FALSE(builder.bags.needs_sort());
  ExpectAsReference(builder.bags, {arrays}, 1);
}

TEST(BagsTest, WithoutErrorsTheHostWaitsOnce) {
  Builder builder(1);
  const int64_t before = RoundTrip::count();
  ASSERT_TRUE(builder.Build({RaggedArrays({0, 2, 3}, {1, 2, 3}), DenseArrays({4})}).ok());
  EXPECT_EQ(RoundTrip::count(), before + 1);
}

// ---- Errors ----

// The error of Build for a lookup in one table.
std::string ErrorOf(const LookupArrays& lookup) {
  const Status status = Builder(1).Build({lookup});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  const std::string prefix = "Lookup in embedding variable 'table0': ";
  EXPECT_EQ(status.message().substr(0, prefix.size()), prefix);
  return status.ok() ? "" : status.message().substr(prefix.size());
}

TEST(BagsTest, ErrorsNameThePlaceAndTheValue) {
  for (const BagsError& error : AllBagsErrors()) EXPECT_EQ(ErrorOf(error.lookup), error.text);
}

TEST(BagsTest, TheErrorIsThatOfTheFirstLookup) {
  EXPECT_EQ(Builder(8).Build(GroupWithErrors()).message(), kErrorOfGroup);
}

int64_t HostileWord(std::mt19937* random) {
  const int64_t words[] = {-1,
                           0,
                           1,
                           2,
                           1000,
                           std::numeric_limits<int64_t>::max(),
                           std::numeric_limits<int64_t>::min(),
                           int64_t{1} << 32};
  return words[(*random)() % 8];
}

// Overwrites some words of a lookup.
void Damage(LookupArrays* arrays, std::mt19937* random) {
  for (std::vector<int64_t>* words : {&arrays->indices, &arrays->row_splits, &arrays->weight_places}) {
    while (!words->empty() && (*random)() % 2 == 0)
      (*words)[(*random)() % words->size()] = HostileWord(random);
  }
  const float weights[] = {std::numeric_limits<float>::infinity(), std::nanf(""), 1e38f};
  while (!arrays->weights.empty() && (*random)() % 2 == 0) {
    arrays->weights[(*random)() % arrays->weights.size()] = weights[(*random)() % 3];
  }
}

// The CPU engine's status for the group.
Status CpuStatus(const std::vector<LookupArrays>& group, int num_tables) {
  std::vector<std::unique_ptr<Table>> tables;
  std::vector<Table*> pointers;
  for (int t = 0; t < num_tables; ++t) {
    tables.push_back(MakeTable("table" + std::to_string(t), 4));
    pointers.push_back(tables.back().get());
  }
  std::vector<LookupSpec> specs;
  std::vector<LookupInput> inputs;
  for (const LookupArrays& arrays : group) {
    specs.push_back(arrays.spec);
    inputs.push_back(arrays.input());
  }
  LookupPlan plan;
  GroupIds ids;
  InlineExecutor executor;
  return BuildBags(executor, pointers, specs, inputs, &plan, &ids);
}

TEST(BagsTest, DamagedGroupsAreTheErrorsOfTheCpu) {
  Builder builder(3);
  int errors = 0;
  for (uint32_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<LookupArrays> group;
    for (uint32_t l = 0; l <= random() % 6; ++l) {
      group.push_back(RandomArrays(&random, 3));
      if (random() % 2 == 0) Damage(&group.back(), &random);
    }
    const Status expected = CpuStatus(group, 3);
    const Status status = builder.Build(group, /*narrow=*/seed % 2 == 0);
    ASSERT_EQ(status.code(), expected.code()) << status.message();
    ASSERT_EQ(status.message(), expected.message());
    if (status.ok()) {
      ExpectAsReference(builder.bags, group, 3);
    } else {
      ++errors;
    }
  }
  EXPECT_GT(errors, 8);
}

// ---- Limits ----

// The status of Build for lookups whose arrays do not exist.
Status StatusOfSizes(const std::vector<LookupSpec>& specs, const std::vector<LookupInput>& inputs,
                     DeviceAllocator* memory) {
  const std::vector<std::string> names = {"a", "b"};
  StagedUpload upload;
  GroupBags bags;
  return bags.Build(nullptr, memory, memory, &upload, {names, specs, inputs, {}}, nullptr);
}

TEST(BagsLimitsTest, MoreIdsThanInt32HoldsAreRefused) {
  std::vector<LookupInput> inputs(2);
  inputs[0].num_ids = inputs[1].num_ids = int64_t{1} << 30;
  LimitedAllocator memory;
  memory.limit = 0;
  const Status status = StatusOfSizes(std::vector<LookupSpec>(2), inputs, &memory);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "Lookup in embedding variable 'a': 2147483648 ids are too many for one step");
}

TEST(BagsLimitsTest, BagsThatDoNotFitNameTheirVariable) {
  std::vector<LookupSpec> specs(2);
  specs[1].layout = IdLayout::kSparse;
  specs[1].table = 1;
  std::vector<LookupInput> inputs(2);
  LimitedAllocator memory;
  memory.limit = 0;
  for (const int64_t num_bags :
       {int64_t{10}, int64_t{1} << 31, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
    inputs[1].num_bags = num_bags;
    const Status status = StatusOfSizes(specs, inputs, &memory);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(status.message(), "Lookup in embedding variable 'b': not enough memory for its bags and ids");
  }
}

}  // namespace
}  // namespace sok
