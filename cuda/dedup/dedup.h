// The distinct ids of a group of lookups.
#ifndef SOK_CUDA_DEDUP_DEDUP_H_
#define SOK_CUDA_DEDUP_DEDUP_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"

namespace sok {

// The ids that a group looks up, ordered by table. All arrays are on the device.
struct Occurrences {
  const int64_t* keys = nullptr;         // [max]
  const int64_t* table_begin = nullptr;  // [num_tables + 1]: table t has [table_begin[t], table_begin[t + 1])
  int num_tables = 0;
  // An upper bound of table_begin[num_tables], which the host does not know.
  int64_t max = 0;
  // [num_tables], on the device: 0 for tables whose ids are not merged; there each occurrence counts as a
  // distinct id. Null if all are merged.
  const uint8_t* is_merged = nullptr;
};

// What dedup finds, in arrays on the device. U stands for begin[num_tables].
struct UniqueIds {
  int64_t* begin = nullptr;     // [num_tables + 1]: table t has the distinct ids [begin[t], begin[t + 1])
  int32_t* inverse = nullptr;   // [max]: the number of each occurrence's distinct id
  int32_t* position = nullptr;  // [max]: first occurrence of each distinct id; U are written
  int64_t* keys = nullptr;      // [max]: the distinct ids; U are written. May be null
  int32_t* counts = nullptr;    // [max]: how often each distinct id occurs; U are written. May be null
};

// Finds the distinct ids of each table and numbers them consecutively over the group: by table, and within a
// table by first occurrence, as in cc/cpu/dedup/dedup.h. Equal ids of two tables are two distinct ids.
//
// Enqueues work on the stream and waits for nothing. InvalidArgument for more than 2^31 - 1 occurrences;
// ResourceExhausted if `scratch` runs out of memory; it takes up to 21 bytes per occurrence.
Status Dedup(cudaStream_t stream, DeviceAllocator* scratch, const Occurrences& occurrences,
             const UniqueIds& unique);

// The occurrences of each distinct id, for sums over them.

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

#endif  // SOK_CUDA_DEDUP_DEDUP_H_
