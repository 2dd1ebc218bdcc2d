// The parts of CUB in use, compared with the standard library. The same test runs on a device, with CUB
// itself.
#include <cuda_runtime.h>

#include <algorithm>
#include <cub/cub.cuh>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "cuda/base/testing/device_array.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

class CubTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

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
  std::vector<int32_t> inclusive(n), exclusive(n);
  std::partial_sum(values.begin(), values.end(), inclusive.begin());
  for (int i = 1; i < n; ++i) exclusive[i] = inclusive[i - 1];
  DeviceArray<int32_t> in(values), out(std::vector<int32_t>(n, -1));
  RunDeviceWide([&](void* memory, size_t& bytes) {
    return cub::DeviceScan::ExclusiveSum(memory, bytes, in.data(), out.data(), n);
  });
  EXPECT_EQ(out.Fetch(), exclusive);
  // In place.
  RunDeviceWide([&](void* memory, size_t& bytes) {
    return cub::DeviceScan::InclusiveSum(memory, bytes, in.data(), in.data(), n);
  });
  EXPECT_EQ(in.Fetch(), inclusive);
}

TEST_P(CubTest, Reductions) {
  const int n = GetParam();
  const std::vector<int64_t> values = RandomValues<int64_t>(n, 1);
  DeviceArray<int64_t> in(values), out(std::vector<int64_t>(2, 5));
  RunDeviceWide([&](void* memory, size_t& bytes) {
    return cub::DeviceReduce::Sum(memory, bytes, in.data(), out.data(), n);
  });
  RunDeviceWide([&](void* memory, size_t& bytes) {
    return cub::DeviceReduce::Max(memory, bytes, in.data(), out.data() + 1, n);
  });
  uint64_t sum = 0;
  int64_t most = std::numeric_limits<int64_t>::min();
  for (int64_t value : values) {
    sum += static_cast<uint64_t>(value);
    most = std::max(most, value);
  }
  EXPECT_EQ(out.Fetch(), (std::vector<int64_t>{static_cast<int64_t>(sum), most}));
}

// Sorts stably by the given bits.
template <typename Key>
void TestSort(int n, int begin_bit, int end_bit) {
  std::vector<Key> keys = RandomValues<Key>(n, 2);
  for (int i = n / 2; i < n; ++i) keys[i] = keys[i - n / 2];
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  DeviceArray<Key> keys_in(keys), keys_out(std::vector<Key>(n, 0)), only_keys(std::vector<Key>(n, 0));
  DeviceArray<int32_t> values_in(order), values_out(std::vector<int32_t>(n, -1));
  RunDeviceWide([&](void* memory, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(memory, bytes, static_cast<const Key*>(keys_in.data()),
                                           keys_out.data(), static_cast<const int32_t*>(values_in.data()),
                                           values_out.data(), n, begin_bit, end_bit);
  });
  RunDeviceWide([&](void* memory, size_t& bytes) {
    return cub::DeviceRadixSort::SortKeys(memory, bytes, static_cast<const Key*>(keys_in.data()),
                                          only_keys.data(), n, begin_bit, end_bit);
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
  EXPECT_EQ(only_keys.Fetch(), sorted);
  EXPECT_EQ(keys_in.Fetch(), keys);
}
TEST_P(CubTest, SortsInt64) { TestSort<int64_t>(GetParam(), 0, 64); }
TEST_P(CubTest, SortsUnsigned64) { TestSort<uint64_t>(GetParam(), 0, 64); }
TEST_P(CubTest, SortsInt32) { TestSort<int32_t>(GetParam(), 0, 32); }
TEST_P(CubTest, SortsBySomeBits) {
  TestSort<uint64_t>(GetParam(), 8, 20);
  TestSort<int32_t>(GetParam(), 28, 32);
}

TEST_P(CubTest, SelectsFlagged) {
  const int n = GetParam();
  const std::vector<int32_t> values = RandomValues<int32_t>(n, 3);
  std::vector<char> flags(n);
  std::vector<int32_t> expected;
  for (int i = 0; i < n; ++i) {
    flags[i] = i % 3 == 1 ? 1 : 0;
    if (flags[i]) expected.push_back(values[i]);
  }
  DeviceArray<int32_t> in(values), out(std::vector<int32_t>(n, -1)), count(std::vector<int32_t>(1, -1));
  DeviceArray<char> device_flags(flags);
  RunDeviceWide([&](void* memory, size_t& bytes) {
    return cub::DeviceSelect::Flagged(memory, bytes, in.data(), device_flags.data(), out.data(), count.data(),
                                      n);
  });
  ASSERT_EQ(count.Fetch()[0], static_cast<int>(expected.size()));
  std::vector<int32_t> selected = out.Fetch();
  selected.resize(expected.size());
  EXPECT_EQ(selected, expected);
}

TEST_P(CubTest, EncodesRuns) {
  const int n = GetParam();
  std::vector<int64_t> values(n), unique;
  std::vector<int32_t> lengths;
  for (int i = 0; i < n; ++i) {
    values[i] = static_cast<int64_t>(i * i / 50) << 33;
    if (i == 0 || values[i] != values[i - 1]) {
      unique.push_back(values[i]);
      lengths.push_back(0);
    }
    ++lengths.back();
  }
  DeviceArray<int64_t> in(values), out(std::vector<int64_t>(n, -1));
  DeviceArray<int32_t> out_lengths(std::vector<int32_t>(n, -1)), runs(std::vector<int32_t>(1, -1));
  RunDeviceWide([&](void* memory, size_t& bytes) {
    return cub::DeviceRunLengthEncode::Encode(memory, bytes, in.data(), out.data(), out_lengths.data(),
                                              runs.data(), n);
  });
  ASSERT_EQ(runs.Fetch()[0], static_cast<int>(unique.size()));
  std::vector<int64_t> got_unique = out.Fetch();
  std::vector<int32_t> got_lengths = out_lengths.Fetch();
  got_unique.resize(unique.size());
  got_lengths.resize(unique.size());
  EXPECT_EQ(got_unique, unique);
  EXPECT_EQ(got_lengths, lengths);
}
INSTANTIATE_TEST_SUITE_P(Sizes, CubTest, ::testing::Values(1, 2, 31, 33, 700));

class CubCallTest : public CubTest {};

TEST_F(CubCallTest, RefusesTooLittleMemory) {
  DeviceArray<int32_t> in(std::vector<int32_t>(1000, 1)), out(std::vector<int32_t>(1000, 0));
  size_t bytes = 1;
  EXPECT_EQ(cub::DeviceScan::ExclusiveSum(out.data(), bytes, in.data(), out.data(), 1000),
            cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_F(CubCallTest, DoubleBuffersSwitch) {
  DeviceArray<uint32_t> keys(std::vector<uint32_t>{3, 1, 2}), other_keys(std::vector<uint32_t>(3, 0));
  DeviceArray<int32_t> values(std::vector<int32_t>{30, 10, 20}), other_values(std::vector<int32_t>(3, 0));
  cub::DoubleBuffer<uint32_t> key_buffers(keys.data(), other_keys.data());
  cub::DoubleBuffer<int32_t> value_buffers(values.data(), other_values.data());
  RunDeviceWide([&](void* memory, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(memory, bytes, key_buffers, value_buffers, 3);
  });
  std::vector<int32_t> sorted(3);
  ASSERT_EQ(cudaMemcpy(sorted.data(), value_buffers.Current(), 3 * sizeof(int32_t), cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(sorted, (std::vector<int32_t>{10, 20, 30}));
}

// ---- Within blocks and warps. ----

constexpr int kThreads = 128;

__global__ void BlockKernel(const int* in, int* before, int* sums) {
  using Scan = cub::BlockScan<int, kThreads>;
  using Reduce = cub::BlockReduce<int, kThreads>;
  __shared__ typename Scan::TempStorage scan;
  __shared__ typename Reduce::TempStorage reduce;
  const int t = static_cast<int>(threadIdx.x), i = static_cast<int>(blockIdx.x) * kThreads + t;
  int all = 0;
  Scan(scan).ExclusiveSum(in[i], before[i], all);
  const int sum = Reduce(reduce).Sum(in[i]);
  __syncthreads();
  const int some = Reduce(reduce).Sum(in[i], 5);
  if (t != 0) return;
  sums[3 * blockIdx.x] = all;
  sums[3 * blockIdx.x + 1] = sum;
  sums[3 * blockIdx.x + 2] = some;
}

__global__ void WarpKernel(const int* in, int* inclusive, int* sums) {
  using Scan = cub::WarpScan<int, 8>;
  using Reduce = cub::WarpReduce<int>;
  __shared__ typename Scan::TempStorage scan[kThreads / 8];
  __shared__ typename Reduce::TempStorage reduce[kThreads / 32];
  const int t = static_cast<int>(threadIdx.x);
  Scan(scan[t / 8]).InclusiveSum(in[t], inclusive[t]);
  const int sum = Reduce(reduce[t / 32]).Sum(in[t]);
  if (t % 32 == 0) sums[t / 32] = sum;
}

cudaLaunchConfig_t Config(unsigned blocks) {
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = kThreads;
  return config;
}

TEST_F(CubCallTest, BlocksScanAndReduce) {
  constexpr int kBlocks = 5;
  std::vector<int> values(kBlocks * kThreads);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i * i % 31) - 9;
  DeviceArray<int> in(values), before(values), sums(std::vector<int>(3 * kBlocks, 0));
  const cudaLaunchConfig_t config = Config(kBlocks);
  ASSERT_EQ(cudaLaunchKernelEx(&config, BlockKernel, static_cast<const int*>(in.data()), before.data(),
                               sums.data()),
            cudaSuccess);
  const std::vector<int> got_before = before.Fetch(), got_sums = sums.Fetch();
  for (int b = 0; b < kBlocks; ++b) {
    int sum = 0, first_five = 0;
    for (int t = 0; t < kThreads; ++t) {
      EXPECT_EQ(got_before[b * kThreads + t], sum);
      sum += values[b * kThreads + t];
      if (t < 5) first_five = sum;
    }
    EXPECT_EQ(got_sums[3 * b], sum);
    EXPECT_EQ(got_sums[3 * b + 1], sum);
    EXPECT_EQ(got_sums[3 * b + 2], first_five);
  }
}

TEST_F(CubCallTest, WarpsScanAndReduce) {
  std::vector<int> values(kThreads);
  std::iota(values.begin(), values.end(), -20);
  DeviceArray<int> in(values), inclusive(values), sums(std::vector<int>(kThreads / 32, 0));
  const cudaLaunchConfig_t config = Config(1);
  ASSERT_EQ(cudaLaunchKernelEx(&config, WarpKernel, static_cast<const int*>(in.data()), inclusive.data(),
                               sums.data()),
            cudaSuccess);
  const std::vector<int> got = inclusive.Fetch(), got_sums = sums.Fetch();
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(got[t], std::accumulate(&values[t / 8 * 8], &values[t] + 1, 0)) << t;
    EXPECT_EQ(got_sums[t / 32], std::accumulate(&values[t / 32 * 32], &values[t / 32 * 32] + 32, 0));
  }
}

}  // namespace
}  // namespace sok
