// The mapping between the keys and the rows of a table, on the device.
#ifndef SOK_CUDA_TABLE_KEY_DIRECTORY_H_
#define SOK_CUDA_TABLE_KEY_DIRECTORY_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/index/key_index.h"
#include "cuda/table/growing_array.h"
#include "cuda/table/key_directory_view.h"

namespace sok {

// The rows and references of cc/table/row_directory.h: new keys get freed rows, the last freed first, then
// new rows in order; freeing a row increments its generation. A row takes 12 bytes in addition to its place
// in the index.
//
// This object has the memory and the sizes. Kernels change the contents (give_rows.h, erase_rows.h), and
// their callers report what they have enqueued (CountGiven, CountErased), so that the host never waits for
// the device. All work is in the order of one stream, or of streams that wait for each other. One thread at a
// time. Move-only.
class KeyDirectory {
 public:
  // The allocator must outlive this object.
  explicit KeyDirectory(DeviceAllocator* allocator)
      : index_(allocator), keys_(allocator), states_(allocator), free_rows_(allocator) {}

  int64_t size() const { return index_.size(); }
  // All row numbers that were ever in use are below this.
  int64_t row_limit() const { return row_limit_; }
  int64_t num_free() const { return num_free_; }
  // row_limit() after `n` more keys.
  int64_t RowLimitWith(int64_t n) const { return row_limit_ + std::max<int64_t>(n - num_free_, 0); }
  // Whether a row was ever freed. Until then references are row numbers.
  bool has_erased() const { return has_erased_; }
  int64_t bytes() const { return index_.bytes() + keys_.bytes() + states_.bytes() + free_rows_.bytes(); }

  KeyDirectoryView view() const { return {index_.view(), keys_.data(), states_.data(), free_rows_.data()}; }

  // Makes room for `keys` keys in total and for the rows [0, rows). ResourceExhausted if memory runs out; the
  // contents are then unchanged, and what has grown stays larger.
  Status Reserve(cudaStream_t stream, int64_t keys, int64_t rows);
  // Makes room to free `n` rows. Errors as above.
  Status ReserveErase(cudaStream_t stream, int64_t n) { return free_rows_.Reserve(stream, num_free_ + n); }

  // Call these after enqueuing kernels that give rows to `n` keys, or that free `n` rows.
  void CountGiven(int64_t n);
  void CountErased(int64_t n);

 private:
  KeyIndex index_;
  GrowingArray<int64_t> keys_;
  GrowingArray<uint32_t> states_;
  GrowingArray<int64_t> free_rows_;
  int64_t num_free_ = 0;
  int64_t row_limit_ = 0;
  bool has_erased_ = false;
};

}  // namespace sok

#endif  // SOK_CUDA_TABLE_KEY_DIRECTORY_H_
