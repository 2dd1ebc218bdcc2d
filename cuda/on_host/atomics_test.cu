// Atomic functions and cuda::atomic_ref. The same test runs on a device.
#include <cuda_runtime.h>

#include <cuda/atomic>
#include <limits>
#include <numeric>
#include <vector>

#include "cuda/base/testing/device_array.h"

namespace sok {
namespace {

constexpr int kBlocks = 6, kThreads = 96, kCalls = kBlocks * kThreads;

// each(call, memory) in every thread of a grid; what it returns goes to results[call].
template <typename T, typename Each>
__global__ void CallKernel(T* memory, T* results, Each each) {
  const int call = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  results[call] = each(call, memory);
}

template <typename T>
struct Outcome {
  std::vector<T> memory, results;
};

template <typename T, typename Each>
Outcome<T> CallInAllThreads(const std::vector<T>& initial, const Each& each) {
  DeviceArray<T> memory(initial), results(std::vector<T>(kCalls, T{}));
  cudaLaunchConfig_t config = {};
  config.gridDim = kBlocks;
  config.blockDim = kThreads;
  EXPECT_EQ(cudaLaunchKernelEx(&config, CallKernel<T, Each>, memory.data(), results.data(), each),
            cudaSuccess);
  return {memory.Fetch(), results.Fetch()};
}

// Every thread sees a different sum.
template <typename T>
void ExpectTickets(const Outcome<T>& outcome) {
  EXPECT_EQ(outcome.memory[0], static_cast<T>(kCalls));
  std::vector<T> tickets = outcome.results, expected(kCalls);
  std::sort(tickets.begin(), tickets.end());
  std::iota(expected.begin(), expected.end(), T{});
  EXPECT_EQ(tickets, expected);
}

SOK_DEVICE_TEST(AtomicsTest, AddOfAllTypes) {
  ExpectTickets(CallInAllThreads<int>({0}, [] __device__(int, int* m) { return atomicAdd(m, 1); }));
  ExpectTickets(
      CallInAllThreads<unsigned>({0}, [] __device__(int, unsigned* m) { return atomicAdd(m, 1u); }));
  ExpectTickets(CallInAllThreads<unsigned long long>(
      {0}, [] __device__(int, unsigned long long* m) { return atomicAdd(m, 1ull); }));
  ExpectTickets(CallInAllThreads<float>({0}, [] __device__(int, float* m) { return atomicAdd(m, 1.0f); }));
  ExpectTickets(CallInAllThreads<double>({0}, [] __device__(int, double* m) { return atomicAdd(m, 1.0); }));
}

SOK_DEVICE_TEST(AtomicsTest, Others) {
  const auto outcome = CallInAllThreads<int>(
      {0, std::numeric_limits<int>::min(), std::numeric_limits<int>::max(), 0, -1, 0, kCalls},
      [] __device__(int call, int* m) {
        atomicMax(&m[1], call - 100);
        atomicMin(&m[2], call - 100);
        atomicOr(&m[3], 1 << call % 20);
        atomicAnd(&m[4], ~(1 << call % 20));
        atomicXor(&m[5], 1 << call % 20);
        return atomicSub(&m[6], 1);
      });
  EXPECT_EQ(outcome.memory[1], kCalls - 101);
  EXPECT_EQ(outcome.memory[2], -100);
  EXPECT_EQ(outcome.memory[3], (1 << 20) - 1);
  EXPECT_EQ(outcome.memory[4], ~((1 << 20) - 1));
  int odd = 0;
  for (int call = 0; call < kCalls; ++call) odd ^= 1 << call % 20;
  EXPECT_EQ(outcome.memory[5], odd);
  EXPECT_EQ(outcome.memory[6], 0);
}

SOK_DEVICE_TEST(AtomicsTest, IncAndDecWrapAtTheirLimit) {
  const auto up =
      CallInAllThreads<unsigned>({0}, [] __device__(int, unsigned* m) { return atomicInc(m, 4); });
  const auto down =
      CallInAllThreads<unsigned>({9}, [] __device__(int, unsigned* m) { return atomicDec(m, 4); });
  EXPECT_EQ(up.memory[0], kCalls % 5);
  EXPECT_EQ(*std::max_element(up.results.begin(), up.results.end()), 4u);
  EXPECT_EQ(down.memory[0], 4u - (kCalls - 1) % 5);
}

SOK_DEVICE_TEST(AtomicsTest, CompareAndSwapHasOneWinner) {
  const auto outcome =
      CallInAllThreads<unsigned long long>({7}, [] __device__(int call, unsigned long long* m) {
        return atomicCAS(m, 7ull, 100ull + static_cast<unsigned>(call));
      });
  EXPECT_EQ(std::count(outcome.results.begin(), outcome.results.end(), 7u), 1);
  EXPECT_GE(outcome.memory[0], 100u);
}

template <typename T>
using Ref = cuda::atomic_ref<T, cuda::thread_scope_device>;

SOK_DEVICE_TEST(AtomicsTest, RefsOfAllTypes) {
  ExpectTickets(CallInAllThreads<int64_t>({0}, [] __device__(int, int64_t* m) {
    return Ref<int64_t>(*m).fetch_add(1, cuda::memory_order_acq_rel);
  }));
  ExpectTickets(CallInAllThreads<uint32_t>({0}, [] __device__(int, uint32_t* m) {
    return Ref<uint32_t>(*m).fetch_add(1, cuda::memory_order_relaxed);
  }));
  ExpectTickets(CallInAllThreads<float>({0}, [] __device__(int, float* m) {
    return Ref<float>(*m).fetch_add(1.0f, cuda::memory_order_relaxed);
  }));
  // A compare-and-exchange loop; the weak form may fail spuriously.
  ExpectTickets(CallInAllThreads<int64_t>({0}, [] __device__(int, int64_t* m) {
    const Ref<int64_t> ref(*m);
    int64_t old = ref.load(cuda::memory_order_relaxed);
    while (!ref.compare_exchange_weak(old, old + 1, cuda::memory_order_acq_rel, cuda::memory_order_relaxed)) {
    }
    return old;
  }));
}

SOK_DEVICE_TEST(AtomicsTest, OtherOperationsOfRefs) {
  const auto outcome = CallInAllThreads<int64_t>({0, 0, 1000, 0, -1, 5}, [] __device__(int call, int64_t* m) {
    Ref<int64_t>(m[0]).fetch_sub(2, cuda::memory_order_relaxed);
    Ref<int64_t>(m[1]).fetch_max(call, cuda::memory_order_relaxed);
    Ref<int64_t>(m[2]).fetch_min(call - 3, cuda::memory_order_relaxed);
    Ref<int64_t>(m[3]).fetch_or(int64_t{1} << call % 60, cuda::memory_order_relaxed);
    Ref<int64_t>(m[4]).store(call, cuda::memory_order_release);
    int64_t expected = 5;
    return static_cast<int64_t>(Ref<int64_t>(m[5]).compare_exchange_strong(expected, 6) ? 100 : expected);
  });
  EXPECT_EQ(outcome.memory[0], -2 * kCalls);
  EXPECT_EQ(outcome.memory[1], kCalls - 1);
  EXPECT_EQ(outcome.memory[2], -3);
  EXPECT_EQ(outcome.memory[3], (int64_t{1} << 60) - 1);
  EXPECT_GE(outcome.memory[4], 0);
  EXPECT_EQ(std::count(outcome.results.begin(), outcome.results.end(), 100), 1);
  EXPECT_EQ(std::count(outcome.results.begin(), outcome.results.end(), 6), kCalls - 1);
}

// What is written before a release is there after an acquire that sees it, also in another block.
SOK_DEVICE_TEST(AtomicsTest, ReleasePublishes) {
  const auto outcome = CallInAllThreads<int>(std::vector<int>(2, 0), [] __device__(int call, int* m) {
    if (call == 0) {
      m[0] = 42;
      Ref<int>(m[1]).store(1, cuda::memory_order_release);
    } else if (Ref<int>(m[1]).load(cuda::memory_order_acquire) == 1) {
      return m[0];
    }
    return 42;
  });
  EXPECT_EQ(outcome.results, std::vector<int>(kCalls, 42));
}

}  // namespace
}  // namespace sok
