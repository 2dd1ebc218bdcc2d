// What warps, tiles and barriers compute, compared with loops on the host. The same test runs on a device.
#include <cuda_runtime.h>

#include <cstring>
#include <cuda/atomic>
#include <limits>
#include <numeric>
#include <vector>

#include "cuda/base/launch.h"
#include "cuda/base/testing/device_array.h"

namespace sok {
namespace {

constexpr int kThreads = 64;
constexpr unsigned kAll = 0xffffffffu;

// One block, out[thread] = body(thread).
template <typename T, typename Body>
__global__ void EvaluateKernel(T* out, Body body) {
  out[threadIdx.x] = body(static_cast<int>(threadIdx.x));
}
template <typename T, typename Body>
std::vector<T> Evaluate(const Body& body) {
  DeviceArray<T> out(std::vector<T>(kThreads, T{}));
  const cudaLaunchConfig_t config = LaunchOf(1, kThreads);
  EXPECT_EQ(cudaLaunchKernelEx(&config, EvaluateKernel<T, Body>, out.data(), body), cudaSuccess);
  return out.Fetch();
}

// What a lane reads, by CUDA's definition; -1: its own value.
int SourceUp(int lane, int delta, int width) { return lane % width >= delta ? lane - delta : lane; }
int SourceDown(int lane, int delta, int width) { return lane % width + delta < width ? lane + delta : lane; }
int SourceXor(int lane, int mask, int width) {
  const int source = lane ^ mask;
  return source / width <= lane / width ? source : lane;
}

template <typename T>
void TestShuffles() {
  for (int width : {1, 2, 8, 16, 32}) {
    for (int n : {0, 1, 3, 7, 16, 31}) {
      const auto value = [] __host__ __device__(int thread) { return static_cast<T>(thread * 1000003 - 7); };
      const auto indexed =
          Evaluate<T>([=] __device__(int t) { return __shfl_sync(kAll, value(t), n, width); });
      const auto up = Evaluate<T>([=] __device__(int t) { return __shfl_up_sync(kAll, value(t), n, width); });
      const auto down =
          Evaluate<T>([=] __device__(int t) { return __shfl_down_sync(kAll, value(t), n, width); });
      const auto with_xor =
          Evaluate<T>([=] __device__(int t) { return __shfl_xor_sync(kAll, value(t), n, width); });
      for (int t = 0; t < kThreads; ++t) {
        const int lane = t % 32, warp = t - lane;
        EXPECT_EQ(indexed[t], value(warp + lane / width * width + n % width))
            << width << " " << n << " " << t;
        EXPECT_EQ(up[t], value(warp + SourceUp(lane, n, width))) << width << " " << n << " " << t;
        EXPECT_EQ(down[t], value(warp + SourceDown(lane, n, width))) << width << " " << n << " " << t;
        EXPECT_EQ(with_xor[t], value(warp + SourceXor(lane, n, width))) << width << " " << n << " " << t;
      }
    }
  }
}
SOK_DEVICE_TEST(WarpTest, ShufflesOfInt) { TestShuffles<int>(); }
SOK_DEVICE_TEST(WarpTest, ShufflesOfUnsigned64) { TestShuffles<unsigned long long>(); }
SOK_DEVICE_TEST(WarpTest, ShufflesOfInt64) { TestShuffles<int64_t>(); }
SOK_DEVICE_TEST(WarpTest, ShufflesOfFloat) { TestShuffles<float>(); }
SOK_DEVICE_TEST(WarpTest, ShufflesOfDouble) { TestShuffles<double>(); }

SOK_DEVICE_TEST(WarpTest, VotesOfPartsOfAWarp) {
  const auto ballot = Evaluate<unsigned>([] __device__(int t) {
    const unsigned mask = t % 32 < 16 ? 0xffffu : 0xffff0000u;
    return __ballot_sync(mask, t % 3 == 0);
  });
  for (int t = 0; t < kThreads; ++t) {
    unsigned expected = 0;
    for (int lane = t % 32 / 16 * 16; lane < t % 32 / 16 * 16 + 16; ++lane) {
      if ((t / 32 * 32 + lane) % 3 == 0) expected |= 1u << lane;
    }
    EXPECT_EQ(ballot[t], expected) << t;
  }
  const auto votes =
      Evaluate<int>([] __device__(int t) { return __any_sync(kAll, t == 5) * 2 + __any_sync(kAll, 0); });
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(votes[t], t < 32 ? 2 : 0) << t;
}

SOK_DEVICE_TEST(WarpTest, Matches) {
  // Values that differ in the high word only, and the two zeros, which have different bits.
  const auto same = Evaluate<unsigned>(
      [] __device__(int t) { return __match_any_sync(kAll, static_cast<unsigned long long>(t % 3) << 40); });
  const auto zeros =
      Evaluate<unsigned>([] __device__(int t) { return __match_any_sync(kAll, t % 2 ? 0.0f : -0.0f); });
  for (int t = 0; t < kThreads; ++t) {
    unsigned expected = 0;
    for (int lane = 0; lane < 32; ++lane) {
      if ((t / 32 * 32 + lane) % 3 == t % 3) expected |= 1u << lane;
    }
    EXPECT_EQ(same[t], expected) << t;
    EXPECT_EQ(zeros[t], t % 2 ? 0xaaaaaaaau : 0x55555555u) << t;
  }
}

// Lanes of one tile wait at their own call while another tile is already at the call of the whole warp.
SOK_DEVICE_TEST(WarpTest, PartsOfAWarpMeetInDifferentPlaces) {
  const auto results = Evaluate<unsigned>([] __device__(int t) {
    unsigned part = 0;
    if (t % 32 >= 28) part = __ballot_sync(0xf0000000u, 1);
    return part + __ballot_sync(kAll, t % 2);
  });
  for (int t = 0; t < kThreads; ++t)
    EXPECT_EQ(results[t], 0xaaaaaaaau + (t % 32 >= 28 ? 0xf0000000u : 0u)) << t;
}

// Each round reads what the last one wrote, in static and in dynamic memory.
__global__ void RotateKernel(int* out, int rounds) {
  __shared__ int fixed[kThreads];
  int* const dynamic = DynamicShared<int>();
  const int t = static_cast<int>(threadIdx.x);
  int value = t;
  for (int r = 0; r < rounds; ++r) {
    int* const values = r % 2 == 0 ? fixed : dynamic;
    values[t] = value;
    __syncthreads();
    value = values[(t + 1) % kThreads];
  }
  out[blockIdx.x * kThreads + threadIdx.x] = value + 1000 * static_cast<int>(blockIdx.x);
}

SOK_DEVICE_TEST(BlockTest, BlocksDoNotShareSharedMemory) {
  constexpr int kBlocks = 9, kRounds = 11;
  DeviceArray<int> out(std::vector<int>(kBlocks * kThreads, -1));
  const cudaLaunchConfig_t config = LaunchOf(kBlocks, kThreads, kThreads * sizeof(int));
  ASSERT_EQ(cudaLaunchKernelEx(&config, RotateKernel, out.data(), kRounds), cudaSuccess);
  const std::vector<int> values = out.Fetch();
  for (int i = 0; i < kBlocks * kThreads; ++i) {
    ASSERT_EQ(values[i], (i + kRounds) % kThreads + i / kThreads * 1000) << i;
  }
}

// Each thread counts its position in a three-dimensional grid; every position must occur once.
__global__ void PositionsKernel(int* out) {
  const dim3 t = dim3(threadIdx.x, threadIdx.y, threadIdx.z), b = dim3(blockIdx.x, blockIdx.y, blockIdx.z);
  const unsigned block = b.x + gridDim.x * (b.y + gridDim.y * b.z);
  const unsigned thread = t.x + blockDim.x * (t.y + blockDim.y * t.z);
  atomicAdd(&out[block * blockDim.x * blockDim.y * blockDim.z + thread], 1);
}

SOK_DEVICE_TEST(BlockTest, GridsAndBlocksHaveThreeDimensions) {
  const dim3 grid(3, 2, 4), block(5, 3, 2);
  constexpr int kAllThreads = 24 * 30;
  DeviceArray<int> out(std::vector<int>(kAllThreads, 0));
  const cudaLaunchConfig_t config = LaunchOf(grid, block);
  ASSERT_EQ(cudaLaunchKernelEx(&config, PositionsKernel, out.data()), cudaSuccess);
  EXPECT_EQ(out.Fetch(), std::vector<int>(kAllThreads, 1));
}

// Atomic functions and cuda::atomic_ref. The same test runs on a device.

constexpr int kAtomicBlocks = 6, kAtomicThreads = 96, kCalls = kAtomicBlocks * kAtomicThreads;

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
  const cudaLaunchConfig_t config = LaunchOf(kAtomicBlocks, kAtomicThreads);
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
  const auto outcome =
      CallInAllThreads<int>({0, std::numeric_limits<int>::min(), std::numeric_limits<int>::max(), 0, -1, 0},
                            [] __device__(int call, int* m) {
                              atomicMax(&m[1], call - 100);
                              atomicMin(&m[2], call - 100);
                              atomicOr(&m[3], 1 << call % 20);
                              atomicAnd(&m[4], ~(1 << call % 20));
                              atomicXor(&m[5], 1 << call % 20);
                              return 0;
                            });
  EXPECT_EQ(outcome.memory[1], kCalls - 101);
  EXPECT_EQ(outcome.memory[2], -100);
  EXPECT_EQ(outcome.memory[3], (1 << 20) - 1);
  EXPECT_EQ(outcome.memory[4], ~((1 << 20) - 1));
  int odd = 0;
  for (int call = 0; call < kCalls; ++call) odd ^= 1 << call % 20;
  EXPECT_EQ(outcome.memory[5], odd);
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
  const auto outcome = CallInAllThreads<int64_t>({1000, 0, -1, 5}, [] __device__(int call, int64_t* m) {
    Ref<int64_t>(m[0]).fetch_min(call - 3, cuda::memory_order_relaxed);
    Ref<int64_t>(m[1]).fetch_or(int64_t{1} << call % 60, cuda::memory_order_relaxed);
    Ref<int64_t>(m[2]).store(call, cuda::memory_order_release);
    int64_t expected = 5;
    return static_cast<int64_t>(Ref<int64_t>(m[3]).compare_exchange_strong(expected, 6) ? 100 : expected);
  });
  EXPECT_EQ(outcome.memory[0], -3);
  EXPECT_EQ(outcome.memory[1], (int64_t{1} << 60) - 1);
  EXPECT_GE(outcome.memory[2], 0);
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
