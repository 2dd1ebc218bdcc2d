// Which rows changed, and which keys were erased, since the last checkpoint of a chain.
#ifndef SOK_CUDA_TABLE_DEVICE_ROW_CHANGES_H_
#define SOK_CUDA_TABLE_DEVICE_ROW_CHANGES_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/table/key_directory.h"

namespace sok {

// Sets the bits of rows[n], in device memory, 32 per word; negative ones are skipped.
Status MarkRows(cudaStream_t stream, const int64_t* rows, int64_t n, uint32_t* bits);

// The CPU's RowChanges on the device, with the same two phases of a save. Order of work, thread safety and
// memory are as for KeyDirectory.
class DeviceRowChanges {
 public:
  explicit DeviceRowChanges(DeviceAllocator* allocator)
      : changed_(allocator), saving_(allocator), erased_(allocator), saving_erased_(allocator) {}

  // Nothing is tracked before Start, which makes room for the rows [0, rows). ResourceExhausted if memory
  // runs out; nothing is tracked then that was not before.
  Status Start(cudaStream_t stream, int64_t rows);
  bool tracks() const { return tracks_; }
  int64_t bytes() const {
    return changed_.bytes() + saving_.bytes() + erased_.bytes() + saving_erased_.bytes();
  }

  // Makes room for the rows [0, rows) and `erasures` more erased keys. ResourceExhausted if memory runs out.
  Status Reserve(cudaStream_t stream, int64_t rows, int64_t erasures);

  // rows[n], in device memory, have changed; negative ones are skipped.
  Status MarkChanged(cudaStream_t stream, const int64_t* rows, int64_t n);
  // rows[n] no longer belong to keys[n].
  Status MarkErased(cudaStream_t stream, const int64_t* rows, const int64_t* keys, int64_t n);

  // changed[words], in device memory, = the bits of the rows that have changed since the last successful
  // save, 32 per word, beginning with row 32 * first_word.
  Status WriteChanged(cudaStream_t stream, int64_t first_word, int64_t words, uint32_t* changed) const;
  // The keys erased since then, each once, in increasing order. Waits for the device.
  Status FetchErased(cudaStream_t stream, std::vector<int64_t>* keys) const;

  // As in cc/table/row_changes.h. ResourceExhausted if memory for erased keys runs out; nothing has changed
  // then.
  Status BeginSave(cudaStream_t stream);
  Status EndSave(cudaStream_t stream, bool ok);

 private:
  // Adds from[n] to the erased keys `to`, of which there are *count.
  static Status Append(cudaStream_t stream, const int64_t* from, int64_t n, GrowingArray<int64_t>* to,
                       int64_t* count);
  Status Merge(cudaStream_t stream, const GrowingArray<uint32_t>& from, GrowingArray<uint32_t>* into);
  static Status Clear(cudaStream_t stream, GrowingArray<uint32_t>* bits);

  bool tracks_ = false;
  GrowingArray<uint32_t> changed_;
  GrowingArray<uint32_t> saving_;
  GrowingArray<int64_t> erased_;
  GrowingArray<int64_t> saving_erased_;
  int64_t num_erased_ = 0;
  int64_t num_saving_erased_ = 0;
};

}  // namespace sok

#endif  // SOK_CUDA_TABLE_DEVICE_ROW_CHANGES_H_
