// The occurrences of each distinct id, for sums over them.
#ifndef SOK_CUDA_DEDUP_SEGMENTS_H_
#define SOK_CUDA_DEDUP_SEGMENTS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"

namespace sok {

// The occurrences of distinct id u are positions[begin[u] .. begin[u + 1]), in increasing order. Arrays on
// the device.
struct SegmentArrays {
  int32_t* begin = nullptr;      // [unique + 1]
  int32_t* positions = nullptr;  // [occurrences]
};

// Sorts the occurrences by their distinct ids: inverse[occurrences], on the device, has values in [0,
// unique). Distinct ids without occurrences have empty segments.
//
// Enqueues work on the stream and waits for nothing. InvalidArgument for more than 2^31 - 1 occurrences;
// ResourceExhausted if `scratch` runs out of memory; it takes about 16 bytes per occurrence.
Status SortIntoSegments(cudaStream_t stream, DeviceAllocator* scratch, const int32_t* inverse,
                        int64_t occurrences, int64_t unique, const SegmentArrays& segments);

}  // namespace sok

#endif  // SOK_CUDA_DEDUP_SEGMENTS_H_
