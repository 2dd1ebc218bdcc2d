#include "cuda/pooling/weight_gradients.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cc/base/executor.h"
#include "cc/pooling/segment_sum.h"
#include "cuda/pooling/testing/device_lookup.h"

namespace sok {
namespace {

class WeightGradientsOnDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

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

TEST_F(WeightGradientsOnDeviceTest, AreThoseOfTheHostBitForBit) {
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
        EXPECT_EQ(Bits(out.Fetch()), Bits(expected.out)) << dim;
      }
    }
  }
}

// Ids in a different order than their bags, some of them in no bag.
TEST_F(WeightGradientsOnDeviceTest, GoWhereTheCallerHasTheWeights) {
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
    EXPECT_EQ(Bits(out.Fetch()), Bits(in_order));
  }
}

TEST_F(WeightGradientsOnDeviceTest, DivisorsOfZeroAndEmptyBags) {
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
    EXPECT_EQ(Bits(out.Fetch()), Bits(expected.out));
  }
}

}  // namespace
}  // namespace sok
