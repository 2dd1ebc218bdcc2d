#include <algorithm>
#include <cub/device/device_scan.cuh>
#include <cuda/atomic>

#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/sharded/served_ids.h"

namespace sok {
namespace {

__device__ __forceinline__ void NoteDamage(uint64_t* damaged, int32_t rank) {
  atomicMin(reinterpret_cast<unsigned long long*>(damaged), static_cast<unsigned long long>(rank));
}

// Copies the lengths, with 0 for invalid ones and a 0 at the end.
__global__ void __launch_bounds__(kThreadsPerBlock)
    CheckLengthsKernel(ServedSums sums, int64_t* lengths, uint64_t* damaged) {
  AwaitPreviousKernels();
  for (int64_t k = ThreadOfGrid(); k <= sums.count; k += ThreadsOfGrid()) {
    const int32_t length = k < sums.count ? sums.lengths[k] : 0;
    lengths[k] = length > 0 ? length : 0;
    if (k < sums.count && length <= 0) NoteDamage(damaged, sums.ranks[PartOf(sums.begin, sums.parts, k)]);
  }
}

// before[k] is the sum of the lengths before sum k.
__global__ void __launch_bounds__(kThreadsPerBlock)
    PlaceSumsKernel(ServedSums sums, const int64_t* before, int32_t* out, uint64_t* damaged) {
  AwaitPreviousKernels();
  for (int64_t k = ThreadOfGrid(); k < sums.count; k += ThreadsOfGrid()) {
    const int q = PartOf(sums.begin, sums.parts, k);
    out[k + q] = static_cast<int32_t>(sums.ids_begin[q] + before[k] - before[sums.begin[q]]);
  }
  for (int64_t q = ThreadOfGrid(); q < sums.parts; q += ThreadsOfGrid()) {
    const int64_t end = sums.begin[q + 1];
    out[end + q] = static_cast<int32_t>(sums.ids_begin[q + 1]);
    if (end == sums.begin[q]) continue;
    const int64_t ids = sums.ids_begin[q + 1] - sums.ids_begin[q];
    if (before[end] - before[sums.begin[q]] != ids) NoteDamage(damaged, sums.ranks[q]);
  }
}

// A rank sends an id once, so there is little contention.
__device__ void AddUpTo31Bits(int32_t* sum, int32_t count) {
  const cuda::atomic_ref<int32_t, cuda::thread_scope_device> total(*sum);
  int32_t before = total.load(cuda::std::memory_order_relaxed);
  int32_t after;
  do {
    after = count > INT32_MAX - before ? INT32_MAX : before + count;
  } while (!total.compare_exchange_weak(before, after, cuda::std::memory_order_relaxed));
}

__global__ void __launch_bounds__(kThreadsPerBlock) AddCountsKernel(ServedCounts in, uint64_t* damaged) {
  AwaitPreviousKernels();
  for (int64_t p = ThreadOfGrid(); p < in.occurrences; p += ThreadsOfGrid()) {
    const int32_t count = in.counts[p];
    if (count > 0) {
      AddUpTo31Bits(&in.sums[in.inverse[p]], count);
    } else {
      NoteDamage(damaged, in.ranks[PartOf(in.ids_begin, in.parts, p)]);
    }
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock) FillKernel(int32_t* values, int64_t n, int32_t value) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) values[i] = value;
}

Status SumBefore(cudaStream_t stream, DeviceAllocator* scratch, const int64_t* values, int64_t n,
                 int64_t* sums) {
  size_t bytes = 0;
  const auto scan = [&](void* memory) {
    return CudaStatus(cub::DeviceScan::ExclusiveSum(memory, bytes, values, sums, n, stream), "cannot add ", n,
                      " numbers");
  };
  SOK_RETURN_IF_ERROR(scan(nullptr));
  // CUB's call only returns the required bytes if it gets no memory, so never pass null.
  bytes = std::max<size_t>(bytes, 1);
  SOK_ASSIGN_OR_RETURN(auto memory,
                       DeviceBuffer<char>::Allocate(scratch, stream, static_cast<int64_t>(bytes)));
  return scan(memory.data());
}

}  // namespace

Status FindServedSums(cudaStream_t stream, DeviceAllocator* scratch, const ServedSums& sums, int32_t* out,
                      uint64_t* damaged) {
  const int64_t n = sums.count + 1;
  SOK_ASSIGN_OR_RETURN(auto memory, DeviceBuffer<int64_t>::Allocate(scratch, stream, 2 * n));
  int64_t* const lengths = memory.data();
  int64_t* const before = lengths + n;
  SOK_RETURN_IF_ERROR(
      Launch("CheckLengths", stream, ShapeFor(n), CheckLengthsKernel, sums, lengths, damaged));
  SOK_RETURN_IF_ERROR(SumBefore(stream, scratch, lengths, n, before));
  return Launch("PlaceSums", stream, ShapeFor(std::max<int64_t>(sums.count, sums.parts)), PlaceSumsKernel,
                sums, before, out, damaged);
}

Status AddServedCounts(cudaStream_t stream, const ServedCounts& counts, uint64_t* damaged) {
  SOK_RETURN_IF_ERROR(FillNumbers(stream, counts.sums, counts.unique, 0));
  return Launch("AddServedCounts", stream, ShapeFor(counts.occurrences), AddCountsKernel, counts, damaged);
}

Status FillNumbers(cudaStream_t stream, int32_t* values, int64_t n, int32_t value) {
  return Launch("FillNumbers", stream, ShapeFor(n), FillKernel, values, n, value);
}

}  // namespace sok
