#include "cuda/pooling/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "cc/cpu/pooling/testing/random_lookup.h"
#include "cuda/pooling/testing/device_lookup.h"

namespace sok {
namespace {

constexpr float kUnwritten = 77.0f;

// How a lookup's output is computed and where it is stored.
struct Output {
  bool pooled = true;
  Combiner combiner = Combiner::kSum;
  bool weighted = false;
  int64_t shift = 0;  // the first row's offset from a multiple of 16 bytes
  int64_t gap = 0;    // between rows
};

// The outputs of several lookups of one group, and their expected values.
class Group {
 public:
  void Add(const DeviceLookup& lookup, const Output& output) {
    const RandomLookup& host = lookup.host();
    const int64_t stride = host.dim + output.gap;
    const int64_t rows = output.pooled ? host.bags() : host.occurrences();
    const std::vector<float> values =
        output.pooled ? PoolReference(host.rows, host.inverse, host.offsets,
                                      output.weighted ? Span<const float>(host.weights) : Span<const float>(),
                                      output.combiner, host.dim)
                      : GatherReference(host.rows, host.inverse, host.dim);
    // Each output has its own place, aligned to 16 bytes, with a gap after it.
    const int64_t first = (static_cast<int64_t>(expected_.size()) + 3) / 4 * 4 + output.shift;
    expected_.resize(static_cast<size_t>(first + rows * stride + 5), kUnwritten);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(values.begin() + row * host.dim, host.dim, expected_.begin() + first + row * stride);
    }
    first_.push_back(first);
    lookups_.push_back({lookup.ids(),
                        output.pooled ? lookup.bags(output.combiner, output.weighted) : lookup.occurrences(),
                        {nullptr, stride}});
  }

  // The outputs' bits. With infinite rows, any NaN is as good as any other: its bits differ between devices.
  void ExpectOutputs(bool has_infinite_rows = false) {
    DeviceArray<float> memory(std::vector<float>(expected_.size(), kUnwritten));
    for (size_t l = 0; l < lookups_.size(); ++l) lookups_[l].output.data = memory.data() + first_[l];
    const Status status = EnqueueOutputs(nullptr, lookups_);
    ASSERT_TRUE(status.ok()) << status.message();
    const std::vector<float> outputs = memory.Fetch();
    const std::vector<uint32_t> actual = BitsOf(outputs);
    const std::vector<uint32_t> expected = BitsOf(expected_);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (actual[i] == expected[i]) continue;
      if (has_infinite_rows && std::isnan(outputs[i]) && std::isnan(expected_[i])) continue;
      const auto lookup = std::upper_bound(first_.begin(), first_.end(), static_cast<int64_t>(i)) - 1;
      const size_t l = static_cast<size_t>(lookup - first_.begin());
      FAIL() << "lookup " << l << ", dim " << lookups_[l].ids.table.dim << ", float "
             << static_cast<int64_t>(i) - *lookup << " of its output";
    }
  }

 private:
  std::vector<LookupOutput> lookups_;
  std::vector<int64_t> first_;  // where in the memory each output starts
  std::vector<float> expected_;
};

RandomLookupOptions OptionsFor(int64_t dim, int64_t bags, int64_t longest_bag) {
  RandomLookupOptions options;
  options.dim = dim;
  options.bags = bags;
  options.longest_bag = longest_bag;
  options.zipf = dim % 2 == 0;
  return options;
}

TEST(PoolTest, EveryDimCombinerAndKindInOneGroup) {
  std::vector<std::unique_ptr<DeviceLookup>> lookups;
  Group group;
  for (const int64_t dim : kDeviceDims) {
    const int64_t bags = dim < 100 ? 24 : 5;
    lookups.push_back(std::make_unique<DeviceLookup>(
        MakeRandomLookup(OptionsFor(dim, bags, /*longest_bag=*/30), static_cast<uint64_t>(dim)),
        static_cast<uint64_t>(dim)));
    for (const Combiner combiner : kAllCombiners) {
      for (const bool weighted : {false, true}) group.Add(*lookups.back(), {true, combiner, weighted});
    }
    group.Add(*lookups.back(), {false});
  }
  group.ExpectOutputs();
}

// All the ways in which the rows of a bag are grouped.
TEST(PoolTest, BagsOfEveryLength) {
  RandomLookup lookup = MakeRandomLookup(OptionsFor(8, 1, 1), /*seed=*/3);
  lookup.inverse.clear();
  lookup.offsets = {0};
  std::mt19937_64 random(1);
  for (int64_t length = 0; length < 50; ++length) {
    for (int64_t i = 0; i < length; ++i) lookup.inverse.push_back(static_cast<int32_t>(random() % 100));
    lookup.offsets.push_back(lookup.occurrences());
  }
  lookup.weights = RandomFloats(lookup.occurrences(), &random);
  const DeviceLookup device(lookup, /*seed=*/5);
  Group group;
  for (const Combiner combiner : kAllCombiners) {
    for (const bool weighted : {false, true}) group.Add(device, {true, combiner, weighted});
  }
  group.ExpectOutputs();
}

// Bags of about kLongBag ids, which begin anywhere, between others and empty ones.
RandomLookup LookupWithLongBags(int64_t dim) {
  RandomLookup lookup = MakeRandomLookup(OptionsFor(dim, 1, 1), /*seed=*/3);
  lookup.inverse.clear();
  lookup.offsets = {0};
  std::mt19937_64 random(1);
  for (const int64_t length : {int64_t{0}, int64_t{3}, kLongBag, kLongBag - 1, int64_t{700}, kLongBag + 1,
                               int64_t{0}, 2 * kLongBag + 517, int64_t{0}}) {
    for (int64_t i = 0; i < length; ++i) lookup.inverse.push_back(static_cast<int32_t>(random() % 100));
    lookup.offsets.push_back(lookup.occurrences());
  }
  lookup.weights = RandomFloats(lookup.occurrences(), &random);
  return lookup;
}

TEST(PoolTest, LongBags) {
  const DeviceLookup device(LookupWithLongBags(/*dim=*/35), /*seed=*/5);
  Group group;
  group.Add(device, {true, Combiner::kMean, false, /*shift=*/1, /*gap=*/2});
  group.Add(device, {true, Combiner::kSqrtN, true});
  group.ExpectOutputs();
}

TEST(PoolTest, LongBagsWithAbsentIds) {
  const DeviceLookup device(LookupWithLongBags(/*dim=*/3), /*seed=*/5, /*absent=*/3,
                            Initializer{InitializerKind::kUniform, -0.5f, 0.25f, 77});
  Group group;
  group.Add(device, {true, Combiner::kSqrtN, false});
  group.Add(device, {true, Combiner::kMean, true});
  group.ExpectOutputs();
}

TEST(PoolTest, OutputsMayLieAnywhereAndGapsStay) {
  for (const int64_t dim : {1, 4, 6, 64}) {
    const DeviceLookup lookup(MakeRandomLookup(OptionsFor(dim, 9, 12), 1),
                              /*seed=*/static_cast<uint64_t>(dim));
    Group group;
    for (const int64_t shift : {0, 1, 4}) {
      for (const int64_t gap : {0, 1, 4}) {
        group.Add(lookup, {true, Combiner::kMean, false, shift, gap});
        group.Add(lookup, {false, Combiner::kSum, false, shift, gap});
      }
    }
    group.ExpectOutputs();
  }
}

TEST(PoolTest, AbsentIdsReadTheirInitialRows) {
  for (const InitializerKind kind : {InitializerKind::kConstant, InitializerKind::kUniform,
                                     InitializerKind::kNormal, InitializerKind::kTruncatedNormal}) {
    for (const int64_t dim : {1, 3, 8}) {
      for (const int absent : {1, 3}) {
        const DeviceLookup lookup(MakeRandomLookup(OptionsFor(dim, 12, 20), 1), /*seed=*/4, absent,
                                  Initializer{kind, -0.5f, 0.25f, 77});
        Group group;
        group.Add(lookup, {true, Combiner::kMean, false});
        group.Add(lookup, {true, Combiner::kSqrtN, true});
        group.Add(lookup, {false});
        group.ExpectOutputs();
      }
    }
  }
}

TEST(PoolTest, DivisorsOfZeroGiveZeros) {
  RandomLookup lookup = MakeRandomLookup(OptionsFor(4, 1, 1), /*seed=*/3);
  lookup.table[0] = INFINITY;
  lookup.inverse = {0, 0, 1, 2, 3};
  lookup.offsets = {0, 2, 2, 4, 5};
  lookup.weights = {0.5f, -0.5f, 0.0f, -0.0f, 2.0f};
  const DeviceLookup device(lookup, /*seed=*/1);
  Group group;
  for (const Combiner combiner : {Combiner::kMean, Combiner::kSqrtN})
    group.Add(device, {true, combiner, true});
  group.ExpectOutputs(/*has_infinite_rows=*/true);
}

// A sum that starts with 0 would lose the sign of a row of -0.
TEST(PoolTest, NegativeZerosKeepTheirSign) {
  RandomLookup lookup = MakeRandomLookup(OptionsFor(4, 1, 1), /*seed=*/3);
  std::fill(lookup.table.begin(), lookup.table.end(), -0.0f);
  lookup.inverse = {0, 1, 2};
  lookup.offsets = {0, 1, 3};
  lookup.weights = {1.0f, 1.0f, 1.0f};
  const DeviceLookup device(lookup, /*seed=*/1);
  for (const bool weighted : {false, true}) {
    DeviceArray<float> out(std::vector<float>(8, 1.0f));
    const LookupOutput output = {device.ids(), device.bags(Combiner::kSum, weighted), {out.data(), 4}};
    ASSERT_TRUE(EnqueueOutputs(nullptr, Span<const LookupOutput>(&output, 1)).ok());
    EXPECT_EQ(BitsOf(out.Fetch()), BitsOf(std::vector<float>(8, -0.0f)));
  }
}

// More lookups than one launch takes, some of them without bags, and sizes around those of a block.
TEST(PoolTest, ManySmallLookups) {
  std::vector<std::unique_ptr<DeviceLookup>> lookups;
  Group group;
  for (int64_t bags = 0; bags < 5; ++bags) {
    RandomLookupOptions options = OptionsFor(bags % 3 == 0 ? 5 : 8, bags, 3);
    options.unique = 10;
    lookups.push_back(std::make_unique<DeviceLookup>(MakeRandomLookup(options, /*seed=*/1), 1));
  }
  for (int64_t l = 0; l < 70; ++l) {
    group.Add(*lookups[static_cast<size_t>(l % 5)], {l % 2 == 0, Combiner::kMean, l % 4 == 0});
  }
  for (const int64_t bags : {127, 128, 129, 255, 256, 257}) {
    lookups.push_back(std::make_unique<DeviceLookup>(
        MakeRandomLookup(OptionsFor(bags % 2 == 0 ? 8 : 1, bags, 2), static_cast<uint64_t>(bags)), 1));
    group.Add(*lookups.back(), {true, Combiner::kSum, false});
    group.Add(*lookups.back(), {false});
  }
  group.ExpectOutputs();
}

TEST(PoolTest, NoLookups) { EXPECT_TRUE(EnqueueOutputs(nullptr, {}).ok()); }

}  // namespace
}  // namespace sok
