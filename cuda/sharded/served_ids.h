// The requests to an owner: checks of them, and their offsets and counts for the ids of all ranks together.
#ifndef SOK_CUDA_SHARDED_SERVED_IDS_H_
#define SOK_CUDA_SHARDED_SERVED_IDS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"

namespace sok {

// Requested sums, by part; a part is a pair of a table and a rank. The arrays are on the device. Parts of
// tables whose owners answer with rows have no sums.
struct ServedSums {
  int parts = 0;
  const int64_t* begin = nullptr;      // [parts + 1]: part q has the sums [begin[q], begin[q + 1])
  const int64_t* ids_begin = nullptr;  // [parts + 1]: its ids are these occurrences of the group
  const int32_t* ranks = nullptr;      // [parts]: the rank of the request
  int64_t count = 0;                   // begin[parts]
  const int32_t* lengths = nullptr;    // [count]: how many of the part's ids, in order, each sum covers
};

// Sum k of part q covers the occurrences [out[k + q], out[k + q + 1]) of the group; `out` has count + parts
// entries. If a length is not positive, or a part's lengths do not add up to the number of its ids, *damaged
// becomes the minimum of its value and the rank. Waits for nothing. ResourceExhausted if `scratch` runs out
// of memory; it takes 16 bytes per sum.
Status FindServedSums(cudaStream_t stream, DeviceAllocator* scratch, const ServedSums& sums, int32_t* out,
                      uint64_t* damaged);

// How often each distinct id was looked up.
struct ServedCounts {
  const int32_t* inverse = nullptr;  // [occurrences]: the distinct id of each
  int64_t occurrences = 0;
  const int32_t* counts = nullptr;  // [occurrences]: how often its rank looked it up
  int32_t* sums = nullptr;          // [unique]; capped at 2^31 - 1
  int64_t unique = 0;
  // [parts + 1] and [parts], as in ServedSums: for errors.
  int parts = 0;
  const int64_t* ids_begin = nullptr;
  const int32_t* ranks = nullptr;
};
// *damaged as above, if a count is not positive.
Status AddServedCounts(cudaStream_t stream, const ServedCounts& counts, uint64_t* damaged);

// values[0 .. n) = value.
Status FillNumbers(cudaStream_t stream, int32_t* values, int64_t n, int32_t value);

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_SERVED_IDS_H_
