// The parts of CUB in use, compared with the standard library. The same test runs on a device, with CUB
// itself.
#include <cuda_runtime.h>

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "cuda/base/testing/device_array.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

class CubTest : public ::testing::TestWithParam<int> {};

// Both calls of a device-wide algorithm: run(memory, bytes).
template <typename Run>
void RunDeviceWide(const Run& run) {
  size_t bytes = 0;
  ASSERT_EQ(run(nullptr, bytes), cudaSuccess);
  ASSERT_GT(bytes, 0u);
  DeviceArray<char> memory(std::vector<char>(bytes, 1));
  ASSERT_EQ(run(memory.data(), bytes), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

template <typename T>
std::vector<T> RandomValues(int n, int seed) {
  std::mt19937_64 random(static_cast<unsigned>(seed));
  std::vector<T> values(static_cast<size_t>(n));
  for (T& value : values) value = static_cast<T>(random());
  const T extremes[] = {std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), 0, 1,
                        static_cast<T>(-1)};
  for (int i = 0; i < std::min(n, 5); ++i) values[static_cast<size_t>(i)] = extremes[i];
  return values;
}

TEST_P(CubTest, Scans) {
  const int n = GetParam();
  std::vector<int32_t> values(n);
  for (int i = 0; i < n; ++i) values[i] = i % 7 - 2;
  std::vector<int32_t> sums(n);
  for (int i = 1; i < n; ++i) sums[i] = sums[i - 1] + values[i - 1];
  DeviceArray<int32_t> in(values), out(std::vector<int32_t>(n, -1));
  for (int32_t* const to : {out.data(), in.data()}) {
    RunDeviceWide([&](void* memory, size_t& bytes) {
      return cub::DeviceScan::ExclusiveSum(memory, bytes, in.data(), to, n);
    });
  }
  EXPECT_EQ(out.Fetch(), sums);
  EXPECT_EQ(in.Fetch(), sums);  // in place
}

// Sorts stably by the given bits.
template <typename Key>
void TestSort(int n, int begin_bit, int end_bit) {
  std::vector<Key> keys = RandomValues<Key>(n, 2);
  for (int i = n / 2; i < n; ++i) keys[i] = keys[i - n / 2];
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  DeviceArray<Key> keys_in(keys), keys_out(std::vector<Key>(n, 0));
  DeviceArray<int32_t> values_in(order), values_out(std::vector<int32_t>(n, -1));
  RunDeviceWide([&](void* memory, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(memory, bytes, static_cast<const Key*>(keys_in.data()),
                                           keys_out.data(), static_cast<const int32_t*>(values_in.data()),
                                           values_out.data(), n, begin_bit, end_bit);
  });
  const int bits = static_cast<int>(sizeof(Key)) * 8, width = end_bit - begin_bit;
  const uint64_t sign = std::is_signed<Key>::value ? uint64_t{1} << (bits - 1) : 0;
  const auto digits = [&](int i) {
    const uint64_t all =
        (static_cast<uint64_t>(static_cast<std::make_unsigned_t<Key>>(keys[i])) ^ sign) >> begin_bit;
    return width == 64 ? all : all & ((uint64_t{1} << width) - 1);
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return digits(a) < digits(b); });
  EXPECT_EQ(values_out.Fetch(), order);
  std::vector<Key> sorted;
  for (int i : order) sorted.push_back(keys[i]);
  EXPECT_EQ(keys_out.Fetch(), sorted);
  EXPECT_EQ(keys_in.Fetch(), keys);
}
TEST_P(CubTest, SortsInt64) { TestSort<int64_t>(GetParam(), 0, 64); }
TEST_P(CubTest, SortsUnsigned64) { TestSort<uint64_t>(GetParam(), 0, 64); }
TEST_P(CubTest, SortsInt32) { TestSort<int32_t>(GetParam(), 0, 32); }
TEST_P(CubTest, SortsBySomeBits) {
  TestSort<uint64_t>(GetParam(), 8, 20);
  TestSort<int32_t>(GetParam(), 28, 32);
}
INSTANTIATE_TEST_SUITE_P(Sizes, CubTest, ::testing::Values(1, 2, 31, 33, 700));

TEST(CubCallTest, RefusesTooLittleMemory) {
  DeviceArray<int32_t> in(std::vector<int32_t>(1000, 1)), out(std::vector<int32_t>(1000, 0));
  size_t bytes = 1;
  EXPECT_EQ(cub::DeviceScan::ExclusiveSum(out.data(), bytes, in.data(), out.data(), 1000),
            cudaErrorInvalidValue);
  cudaGetLastError();
}

}  // namespace
}  // namespace sok
