#include "cuda/pooling/lookup_gradients.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cc/base/executor.h"
#include "cc/cpu/pooling/segment_sum.h"
#include "cuda/base/allocators.h"
#include "cuda/pooling/testing/device_lookup.h"

namespace sok {
namespace {

class OccurrenceGradientsTest : public ::testing::Test {
 protected:
  // Lookups of one host lookup, one after the other in the group's occurrences.
  struct Case {
    bool pooled;
    Combiner combiner;
    bool weighted;
  };

  void ExpectGradients(const RandomLookup& host, const std::vector<Case>& cases) {
    const DeviceLookup lookup(host, /*seed=*/1);
    // Addresses are compared, never read.
    const auto* const gradient = reinterpret_cast<const float*>(uintptr_t{1} << 40);
    const int64_t stride = 11;
    const int64_t count = host.occurrences();
    const int64_t all = count + DeviceLookup::kFirst;
    DeviceArray<OccurrenceGradient> out(
        std::vector<OccurrenceGradient>(static_cast<size_t>(all) * cases.size()));
    std::vector<int32_t> bag_of(static_cast<size_t>(all), -1);
    for (int64_t bag = 0; bag < host.bags(); ++bag) {
      std::fill(bag_of.begin() + DeviceLookup::kFirst + host.offsets[static_cast<size_t>(bag)],
                bag_of.begin() + DeviceLookup::kFirst + host.offsets[static_cast<size_t>(bag) + 1],
                static_cast<int32_t>(bag));
    }
    DeviceArray<int32_t> device_bag_of(bag_of);
    std::vector<LookupGradient> lookups;
    for (const Case& c : cases) {
      const int64_t first = static_cast<int64_t>(lookups.size()) * all;
      lookups.push_back({c.pooled ? lookup.bags(c.combiner, c.weighted) : lookup.occurrences(),
                         count,
                         lookups.size() % 2 == 0 ? nullptr : device_bag_of.data(),
                         {gradient, stride},
                         out.data() + first});
    }
    const Status status = EnqueueOccurrenceGradients(nullptr, &allocator_, lookups);
    ASSERT_TRUE(status.ok()) << status.message();
    const std::vector<OccurrenceGradient> found = out.Fetch();
    for (size_t k = 0; k < cases.size(); ++k) {
      std::vector<float> scales(static_cast<size_t>(count), 1.0f);
      std::vector<int64_t> row_of(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) row_of[static_cast<size_t>(i)] = i;
      if (cases[k].pooled) {
        BagScales(cases[k].combiner, host.offsets,
                  cases[k].weighted ? Span<const float>(host.weights) : Span<const float>(),
                  Span<float>(scales));
        for (int64_t bag = 0; bag < host.bags(); ++bag) {
          std::fill(row_of.begin() + host.offsets[static_cast<size_t>(bag)],
                    row_of.begin() + host.offsets[static_cast<size_t>(bag) + 1], bag);
        }
      }
      std::vector<float> found_scales;
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        const OccurrenceGradient& one = found[k * static_cast<size_t>(all) + DeviceLookup::kFirst + i];
        ASSERT_EQ(one.row, gradient + row_of[i] * stride) << k << " " << i;
        found_scales.push_back(one.scale);
      }
      EXPECT_EQ(BitsOf(found_scales), BitsOf(scales)) << k;
    }
  }

  AsyncAllocator allocator_;
};

TEST_F(OccurrenceGradientsTest, AreThoseOfTheBags) {
  RandomLookupOptions options;
  options.dim = 1;
  for (const int64_t bags : {0, 1, 2, 100, 257}) {
    for (const int64_t longest_bag : {1, 7}) {
      options.bags = bags;
      options.longest_bag = longest_bag;
      std::vector<Case> cases = {{false, Combiner::kSum, false}};
      for (const Combiner combiner : kAllCombiners) {
        for (const bool weighted : {false, true}) {
          // With bag_of and without.
          cases.insert(cases.end(), 2, {true, combiner, weighted});
        }
      }
      ExpectGradients(MakeRandomLookup(options, static_cast<uint64_t>(bags + longest_bag)), cases);
    }
  }
}

TEST_F(OccurrenceGradientsTest, EmptyBagsAndDivisorsOfZero) {
  RandomLookup lookup = MakeRandomLookup({}, /*seed=*/3);
  lookup.inverse = {0, 1, 2, 3, 4, 5};
  lookup.offsets = {0, 0, 0, 2, 2, 4, 6, 6, 6};
  lookup.weights = {0.5f, -0.5f, 0.0f, 0.0f, 3.0f, 0.1f};
  ExpectGradients(lookup, {{true, Combiner::kMean, true}, {true, Combiner::kSqrtN, true}});
}

TEST_F(OccurrenceGradientsTest, MoreLookupsThanALaunchTakes) {
  RandomLookupOptions options;
  options.bags = 3;
  std::vector<Case> cases;
  for (int k = 0; k < 80; ++k) cases.push_back({k % 5 != 0, kAllCombiners[k % 3], k % 2 == 0});
  ExpectGradients(MakeRandomLookup(options, /*seed=*/9), cases);
}

struct Expected {
  std::vector<float> grad;
  std::vector<float> out;  // in the order of the occurrences
};

Expected ExpectedOf(const RandomLookup& host, Combiner combiner, int64_t stride) {
  std::mt19937_64 random(7);
  Expected expected;
  expected.grad = RandomFloats(host.bags() * stride, &random);
  expected.out.resize(host.inverse.size());
  InlineExecutor executor;
  WeightGradients(executor, combiner, host.rows, host.inverse, host.offsets, host.weights,
                  expected.grad.data(), stride, host.dim, Span<float>(expected.out));
  return expected;
}

TEST(WeightGradientsOnDeviceTest, AreThoseOfTheHostBitForBit) {
  for (const int64_t dim : kDeviceDims) {
    RandomLookupOptions options;
    options.dim = dim;
    options.bags = dim < 100 ? 12 : 5;
    for (const int absent : {0, 2}) {
      const DeviceLookup lookup(MakeRandomLookup(options, static_cast<uint64_t>(dim)),
                                static_cast<uint64_t>(dim), absent);
      const RandomLookup& host = lookup.host();
      for (const Combiner combiner : kAllCombiners) {
        const int64_t stride = dim + (dim % 2 == 0 ? 0 : 3);
        const Expected expected = ExpectedOf(host, combiner, stride);
        DeviceArray<float> grad(expected.grad), out(std::vector<float>(expected.out.size(), 5.0f));
        const int64_t count = host.occurrences();
        const LookupWeightGradient one = {
            lookup.ids(), lookup.bags(combiner, true), {grad.data(), stride}, nullptr, count, count,
            out.data()};
        const Status status = EnqueueWeightGradients(nullptr, Span<const LookupWeightGradient>(&one, 1));
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(BitsOf(out.Fetch()), BitsOf(expected.out)) << dim;
      }
    }
  }
}

// Ids in a different order than their bags, some of them in no bag.
TEST(WeightGradientsOnDeviceTest, GoWhereTheCallerHasTheWeights) {
  RandomLookupOptions options;
  options.dim = 5;
  const DeviceLookup lookup(MakeRandomLookup(options, /*seed=*/2), /*seed=*/3);
  const RandomLookup& host = lookup.host();
  const int64_t count = host.occurrences();
  const int64_t given = count + 20;
  std::vector<int32_t> order(static_cast<size_t>(given));
  for (int64_t i = 0; i < given; ++i) order[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(4));
  order.resize(static_cast<size_t>(count));
  for (const Combiner combiner : kAllCombiners) {
    const Expected expected = ExpectedOf(host, combiner, options.dim);
    std::vector<float> in_order(static_cast<size_t>(given), 0.0f);
    for (size_t i = 0; i < order.size(); ++i) in_order[static_cast<size_t>(order[i])] = expected.out[i];
    DeviceArray<float> grad(expected.grad), out(std::vector<float>(in_order.size(), 5.0f));
    DeviceArray<int32_t> device_order(DeviceLookup::WithOthers(order, 0));
    const LookupWeightGradient one = {lookup.ids(),
                                      lookup.bags(combiner, true),
                                      {grad.data(), options.dim},
                                      device_order.data(),
                                      given,
                                      count,
                                      out.data()};
    ASSERT_TRUE(EnqueueWeightGradients(nullptr, Span<const LookupWeightGradient>(&one, 1)).ok());
    EXPECT_EQ(BitsOf(out.Fetch()), BitsOf(in_order));
  }
}

TEST(WeightGradientsOnDeviceTest, DivisorsOfZeroAndEmptyBags) {
  RandomLookup host = MakeRandomLookup({}, /*seed=*/3);
  host.inverse = {0, 1, 2, 3, 4};
  host.offsets = {0, 0, 2, 4, 4, 5};
  host.weights = {0.5f, -0.5f, 0.0f, 0.0f, 2.0f};
  const DeviceLookup lookup(host, /*seed=*/1);
  for (const Combiner combiner : kAllCombiners) {
    const Expected expected = ExpectedOf(lookup.host(), combiner, host.dim);
    DeviceArray<float> grad(expected.grad), out(std::vector<float>(5, 5.0f));
    const LookupWeightGradient one = {
        lookup.ids(), lookup.bags(combiner, true), {grad.data(), host.dim}, nullptr, 5, 5, out.data()};
    ASSERT_TRUE(EnqueueWeightGradients(nullptr, Span<const LookupWeightGradient>(&one, 1)).ok());
    EXPECT_EQ(BitsOf(out.Fetch()), BitsOf(expected.out));
  }
}

}  // namespace

}  // namespace sok
