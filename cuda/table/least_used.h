// Which rows a full table evicts.
#ifndef SOK_CUDA_TABLE_LEAST_USED_H_
#define SOK_CUDA_TABLE_LEAST_USED_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/store/device_slabs.h"
#include "cuda/table/device_table.h"

namespace sok {

// Finds the rows that a full table evicts, without sorting the others. Only .cu files include this header.

// The priorities of a table's rows, in the order of EvictionQueue (cc/cpu/table/eviction_queue.h): smallest
// (last_used, key) first, or with `by_frequency` smallest (frequency, last_used, key). Each is converted to
// an unsigned number that sorts the same way.
struct RowPriorities {
  ColumnView<int64_t> keys;       // distinct
  ColumnView<int64_t> last_used;  // from 0 to `uses`
  ColumnView<int64_t> frequency;  // none is negative; read only `by_frequency`
  int64_t uses = 0;
  bool by_frequency = false;

  __device__ uint64_t Key(int64_t row) const {
    return static_cast<uint64_t>(keys[row]) ^ (uint64_t{1} << 63);
  }
  __device__ uint64_t LastUsed(int64_t row) const { return static_cast<uint64_t>(last_used[row]); }
  __device__ uint64_t Frequency(int64_t row) const { return static_cast<uint64_t>(frequency[row]); }
};

// The number of bits of the numbers from 0 to `most`.
inline int BitsOf(int64_t most) {
  int bits = 1;
  while (bits < 63 && most >= int64_t{1} << bits) ++bits;
  return bits;
}

// candidates[(rows + 31) / 32], on the device, has a bit for each row that may be chosen: row r is bit r % 32
// of word r / 32. Keeps only the bits of the `n` rows with the lowest priorities; there must be at least `n`
// candidates. Fewer than 2^31 rows.
//
// Finds the n-th priority digit by digit, like a radix sort that continues with one bucket only. The first
// digit is read for all candidates, and the next ones for those that are still undecided: about 20 bytes of
// traffic for each candidate, unless most priorities are equal. ResourceExhausted if `scratch` runs out of
// memory; it takes a bit per row. Waits for nothing.
Status ChooseLeast(cudaStream_t stream, DeviceAllocator* scratch, const RowPriorities& priorities,
                   int64_t rows, int64_t n, uint32_t* candidates);

// Lists the first `n` rows in use of a table in the order of EvictionQueue (cc/cpu/table/eviction_queue.h),
// smallest (last_used, key) first, or if the table evicts by frequency smallest (frequency, last_used, key).
// Leaves out the rows kept[num_kept], whose negative entries are ignored; there must be at least `n` others.
// Fewer than 2^31 rows.
//
// Chooses `n` of all rows and sorts these. Takes half a byte of `scratch` per row and 40
// bytes for each of the `n`; ResourceExhausted if `scratch` runs out of memory.
Status ListLeastUsed(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const int64_t* kept,
                     int64_t num_kept, int64_t n, DeviceBuffer<int64_t>* rows);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_LEAST_USED_H_
