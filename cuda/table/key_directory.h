// The mapping between the keys and the rows of a table, on the device.
#ifndef SOK_CUDA_TABLE_KEY_DIRECTORY_H_
#define SOK_CUDA_TABLE_KEY_DIRECTORY_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cc/base/host_device.h"
#include "cc/base/status.h"
#include "cc/table/record_layout.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/growing_array.h"
#include "cuda/index/key_index.h"
#include "cuda/index/key_index_view.h"
#include "cuda/store/device_slabs.h"

namespace sok {

// A kernel's view of a table's keys and rows.

// The state of a row: whether a key has it, and how often it has been freed (its generation).
constexpr uint32_t kRowInUse = uint32_t{1} << 31;

SOK_HOST_DEVICE bool IsInUse(uint32_t state) { return (state & kRowInUse) != 0; }
// The state of a freed row, from its state before.
SOK_HOST_DEVICE uint32_t FreedState(uint32_t state) { return NextGeneration(state & kGenerationMask); }
// The reference that a lookup passes to its gradient: cc/table/record_layout.h.
SOK_HOST_DEVICE int64_t ReferenceTo(int64_t row, uint32_t state) {
  return MakeRowReference(row, state & kGenerationMask);
}
// Whether the row of `reference`, which has this state, still belongs to the key that it had.
SOK_HOST_DEVICE bool IsCurrentReference(int64_t reference, uint32_t state) {
  return IsInUse(state) && ReferenceTo(RowOf(reference), state) == reference;
}

// Pointers to device memory, valid until the directory next makes room.
struct KeyDirectoryView {
  KeyIndexView index;
  ColumnView<int64_t> keys;  // of rows in use
  ColumnView<uint32_t> states;
  int64_t* free_rows = nullptr;  // a stack, its top at the end
};

// The rows and references of cc/cpu/table/row_directory.h: new keys get freed rows, the last freed first,
// then new rows in order; freeing a row increments its generation. A row takes 12 bytes in addition to its
// place in the index.
//
// This object has the memory and the sizes. Kernels change the contents (directory_rows.h), and
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

  KeyDirectoryView view() const { return {index_.view(), keys_.view(), states_.view(), free_rows_.data()}; }

  // Makes room for `keys` keys in total and for the rows [0, rows). ResourceExhausted if memory runs out; the
  // contents are then unchanged, and what has grown stays larger.
  Status Reserve(cudaStream_t stream, int64_t keys, int64_t rows);
  // Makes room to free `n` rows. Errors as above.
  Status ReserveErase(cudaStream_t stream, int64_t n) { return free_rows_.Reserve(stream, num_free_ + n); }

  // Call these after enqueuing kernels that give rows to `n` keys, or that free `n` rows.
  void CountGiven(int64_t n);
  void CountErased(cudaStream_t stream, int64_t n);

 private:
  KeyIndex index_;
  DeviceColumn<int64_t> keys_;
  DeviceColumn<uint32_t> states_;
  GrowingArray<int64_t> free_rows_;
  int64_t num_free_ = 0;
  int64_t row_limit_ = 0;
  bool has_erased_ = false;
};

// The distinct ids of a group of tables, numbered as in cuda/dedup/dedup.h: ordered by table. All arrays are
// on the device.
struct IdsOfGroup {
  int tables = 0;
  // [tables + 1]: table t has the ids [begin[t], begin[t + 1]). begin[0] is 0.
  const int64_t* begin = nullptr;
  const int64_t* keys = nullptr;  // [max]
  int64_t max = 0;                // an upper bound of begin[tables] that the host knows; below 2^31
};

// Some of these ids, in order.
struct SomeIds {
  int64_t* begin = nullptr;  // [tables + 1]: those of table t are [begin[t], begin[t + 1])
  // [max], of which begin[tables] are written: their numbers among the group's ids.
  int32_t* which = nullptr;
};

}  // namespace sok

#endif  // SOK_CUDA_TABLE_KEY_DIRECTORY_H_
