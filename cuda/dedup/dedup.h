// The distinct ids of a group of lookups.
#ifndef SOK_CUDA_DEDUP_DEDUP_H_
#define SOK_CUDA_DEDUP_DEDUP_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"

namespace sok {

// The ids that a group looks up, those of table 0 first, then those of table 1, and so on. All arrays are on
// the device.
struct Occurrences {
  const int64_t* keys = nullptr;         // [max]
  const int64_t* table_begin = nullptr;  // [num_tables + 1]: table t has [table_begin[t], table_begin[t + 1])
  int num_tables = 0;
  // What the host knows of table_begin[num_tables]: it is at most this.
  int64_t max = 0;
  // [num_tables], on the device: 0 for tables whose ids are not merged. There each occurrence is a distinct
  // id. Null where all are merged.
  const uint8_t* is_merged = nullptr;
};

// What dedup finds, in arrays on the device. U stands for begin[num_tables].
struct UniqueIds {
  int64_t* begin = nullptr;     // [num_tables + 1]: table t has the distinct ids [begin[t], begin[t + 1])
  int32_t* inverse = nullptr;   // [max]: of each occurrence the number of its distinct id
  int32_t* position = nullptr;  // [max]: of each distinct id its first occurrence; U are written
  int64_t* keys = nullptr;      // [max]: the distinct ids; U are written. May be null
  int32_t* counts = nullptr;    // [max]: of each distinct id its occurrences; U are written. May be null
};

// Finds the distinct ids of each table and numbers them through the group, in order of first occurrence:
// table by table the order of cc/dedup/dedup.h. Equal ids of two tables are two distinct ids.
//
// Puts work into the stream and waits for nothing. InvalidArgument for more than 2^31 - 1 occurrences;
// ResourceExhausted where `scratch` has no memory, of which it takes up to 21 bytes for an occurrence.
Status Dedup(cudaStream_t stream, DeviceAllocator* scratch, const Occurrences& occurrences,
             const UniqueIds& unique);

}  // namespace sok

#endif  // SOK_CUDA_DEDUP_DEDUP_H_
