// WarpReduce, WarpScan, BlockReduce and BlockScan, for blocks of one dimension.
//
// As with CUB, all threads of the warp or block make a call, and reusing memory needs a barrier in between.
// What CUB leaves undefined is garbage here: a reduction's result in all threads but the first.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUB_ON_HOST_COLLECTIVES_H_
#define SOK_CUDA_ON_HOST_INCLUDE_CUB_ON_HOST_COLLECTIVES_H_

#include <cstring>

#include "cub_on_host/device_algorithms.h"

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS
};

namespace on_host_internal {

template <typename T>
T Garbage() {
  T value;
  std::memset(static_cast<void*>(&value), 0xad, sizeof(T));
  return value;
}

// Memory for one value of each of kThreads threads, and the operations that the threads share.
template <typename T, int kThreads>
struct Exchange {
  T values[kThreads];

  template <typename Sync, typename Op>
  T Reduce(int rank, T value, int num_valid, const Op& op, const Sync& sync) {
    values[rank] = value;
    sync();
    if (rank != 0) return Garbage<T>();
    T all = values[0];
    for (int i = 1; i < num_valid; ++i) all = op(all, values[i]);
    return all;
  }
  // The combination of the values up to this thread's.
  template <typename Sync>
  void InclusiveSum(int rank, T value, T& sum, T& all, const Sync& sync) {
    values[rank] = value;
    sync();
    all = values[0];
    sum = all;
    for (int i = 1; i < kThreads; ++i) {
      all = Plus()(all, values[i]);
      if (i == rank) sum = all;
    }
  }
  template <typename Sync>
  void ExclusiveSum(int rank, T value, T& before, T& all, const Sync& sync) {
    values[rank] = value;
    sync();
    T sum = {};
    for (int i = 0; i < kThreads; ++i) {
      if (i == rank) before = sum;
      sum = Plus()(sum, values[i]);
    }
    all = sum;
  }
};

}  // namespace on_host_internal

// Groups of kThreads lanes, a power of two. Each group needs its own memory.
template <typename T, int kThreads = 32>
class WarpReduce {
  static_assert(kThreads >= 1 && kThreads <= 32 && (kThreads & (kThreads - 1)) == 0);

 public:
  struct TempStorage {
    on_host_internal::Exchange<T, kThreads> exchange;
  };
  explicit WarpReduce(TempStorage& storage) : storage_(storage) {}

  T Sum(T value, SOK_CALLED_AT) { return Reduce(value, on_host_internal::Plus(), place); }
  template <typename Op>
  T Reduce(T value, Op op, SOK_CALLED_AT) {
    return storage_.exchange.Reduce(Rank(), value, kThreads, op, [&] { __syncwarp(Mask(), place); });
  }

  static int Rank() { return static_cast<int>(threadIdx.x) % kThreads; }
  static unsigned Mask() {
    const unsigned lanes = kThreads == 32 ? 0xffffffffu : (1u << kThreads % 32) - 1;
    return lanes << (threadIdx.x % 32 / kThreads * kThreads);
  }

 private:
  TempStorage& storage_;
};

template <typename T, int kThreads = 32>
class WarpScan {
 public:
  struct TempStorage {
    on_host_internal::Exchange<T, kThreads> exchange;
  };
  explicit WarpScan(TempStorage& storage) : storage_(storage) {}

  void InclusiveSum(T value, T& sum, SOK_CALLED_AT) {
    T all;
    InclusiveSum(value, sum, all, place);
  }
  void InclusiveSum(T value, T& sum, T& all, SOK_CALLED_AT) {
    storage_.exchange.InclusiveSum(Group::Rank(), value, sum, all, [&] { __syncwarp(Group::Mask(), place); });
  }
  void ExclusiveSum(T value, T& before, SOK_CALLED_AT) {
    T all;
    ExclusiveSum(value, before, all, place);
  }
  void ExclusiveSum(T value, T& before, T& all, SOK_CALLED_AT) {
    storage_.exchange.ExclusiveSum(Group::Rank(), value, before, all,
                                   [&] { __syncwarp(Group::Mask(), place); });
  }

 private:
  using Group = WarpReduce<T, kThreads>;
  TempStorage& storage_;
};

template <typename T, int kThreads, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS>
class BlockReduce {
 public:
  struct TempStorage {
    on_host_internal::Exchange<T, kThreads> exchange;
  };
  explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

  T Sum(T value, SOK_CALLED_AT) { return Reduce(value, on_host_internal::Plus(), kThreads, place); }
  // The sum over the first `num_valid` threads.
  T Sum(T value, int num_valid, SOK_CALLED_AT) {
    return Reduce(value, on_host_internal::Plus(), num_valid, place);
  }
  template <typename Op>
  T Reduce(T value, Op op, SOK_CALLED_AT) {
    return Reduce(value, op, kThreads, place);
  }
  template <typename Op>
  T Reduce(T value, Op op, int num_valid, SOK_CALLED_AT) {
    return storage_.exchange.Reduce(static_cast<int>(threadIdx.x), value, num_valid, op,
                                    [&] { __syncthreads(place); });
  }

 private:
  TempStorage& storage_;
};

template <typename T, int kThreads, BlockScanAlgorithm = BLOCK_SCAN_RAKING>
class BlockScan {
 public:
  struct TempStorage {
    on_host_internal::Exchange<T, kThreads> exchange;
  };
  explicit BlockScan(TempStorage& storage) : storage_(storage) {}

  void InclusiveSum(T value, T& sum, SOK_CALLED_AT) {
    T all;
    InclusiveSum(value, sum, all, place);
  }
  void InclusiveSum(T value, T& sum, T& all, SOK_CALLED_AT) {
    storage_.exchange.InclusiveSum(static_cast<int>(threadIdx.x), value, sum, all,
                                   [&] { __syncthreads(place); });
  }
  void ExclusiveSum(T value, T& before, SOK_CALLED_AT) {
    T all;
    ExclusiveSum(value, before, all, place);
  }
  void ExclusiveSum(T value, T& before, T& all, SOK_CALLED_AT) {
    storage_.exchange.ExclusiveSum(static_cast<int>(threadIdx.x), value, before, all,
                                   [&] { __syncthreads(place); });
  }
  // A scan over kItems consecutive values per thread, thread after thread.
  template <int kItems>
  void ExclusiveSum(T (&values)[kItems], T (&before)[kItems], T& all, SOK_CALLED_AT) {
    T mine = values[0];
    for (int i = 1; i < kItems; ++i) mine = on_host_internal::Plus()(mine, values[i]);
    T sum;
    ExclusiveSum(mine, sum, all, place);
    for (int i = 0; i < kItems; ++i) {
      const T value = values[i];
      before[i] = sum;
      sum = on_host_internal::Plus()(sum, value);
    }
  }
  template <int kItems>
  void ExclusiveSum(T (&values)[kItems], T (&before)[kItems], SOK_CALLED_AT) {
    T all;
    ExclusiveSum(values, before, all, place);
  }

 private:
  TempStorage& storage_;
};

}  // namespace cub

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUB_ON_HOST_COLLECTIVES_H_
