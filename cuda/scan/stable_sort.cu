#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "cuda/base/cuda_status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/scan/stable_sort.h"

namespace sok {
namespace {

// Bits of the largest key; at least one, so that pairs of one key are copied, too.
int BitsOf(int64_t num_keys) {
  int bits = 1;
  while (bits < 32 && num_keys > int64_t{1} << bits) ++bits;
  return bits;
}

}  // namespace

Status StableSort(cudaStream_t stream, DeviceAllocator* scratch, int64_t n, int64_t num_keys,
                  const uint32_t* keys, const int32_t* values, uint32_t* sorted_keys,
                  int32_t* sorted_values) {
  if (n == 0) return OkStatus();
  const auto sort = [&](void* memory, size_t& bytes) {
    return CudaStatus(cub::DeviceRadixSort::SortPairs(memory, bytes, keys, sorted_keys, values, sorted_values,
                                                      static_cast<int>(n), 0, BitsOf(num_keys), stream),
                      "cannot sort ", n, " numbers");
  };
  size_t bytes = 0;
  SOK_RETURN_IF_ERROR(sort(nullptr, bytes));
  // CUB's call only returns the required bytes if it gets no memory, so never pass null.
  bytes = std::max<size_t>(bytes, 1);
  StatusOr<DeviceBuffer<char>> memory =
      DeviceBuffer<char>::Allocate(scratch, stream, static_cast<int64_t>(bytes));
  SOK_RETURN_IF_ERROR(memory.status());
  return sort(memory.value().data(), bytes);
}

}  // namespace sok
