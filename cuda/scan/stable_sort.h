// A stable sort of numbers.
#ifndef SOK_CUDA_SCAN_STABLE_SORT_H_
#define SOK_CUDA_SCAN_STABLE_SORT_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"

namespace sok {

// Sorts `n` pairs by their keys, which are in [0, num_keys): sorted_keys[k] and sorted_values[k] are the k-th
// pair. Pairs with equal keys keep their order. All arrays are on the device and do not overlap; n < 2^31,
// num_keys <= 2^32. ResourceExhausted if `scratch` runs out of memory; it takes about 8 bytes per pair.
Status StableSort(cudaStream_t stream, DeviceAllocator* scratch, int64_t n, int64_t num_keys,
                  const uint32_t* keys, const int32_t* values, uint32_t* sorted_keys, int32_t* sorted_values);

}  // namespace sok

#endif  // SOK_CUDA_SCAN_STABLE_SORT_H_
