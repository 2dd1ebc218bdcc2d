// The ids that a CounterFilter has seen but not admitted yet, on the device.
#ifndef SOK_CUDA_TABLE_DEVICE_WAITING_H_
#define SOK_CUDA_TABLE_DEVICE_WAITING_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"
#include "cuda/store/device_slabs.h"
#include "cuda/table/device_row_changes.h"
#include "cuda/table/directory_rows.h"
#include "cuda/table/key_directory.h"

namespace sok {

// Adds `by` to steps[0, n), bounded below by 0.
Status AddToSteps(cudaStream_t stream, const ColumnView<int64_t>& steps, int64_t n, int64_t by);

// A kernel's view of these ids.
struct WaitingView {
  KeyDirectoryView directory;
  ColumnView<int64_t> counts;      // occurrences so far
  ColumnView<int64_t> last_steps;  // the table's steps() at the last of them
};

// WaitingIds (cc/cpu/table/admission_filter.h) on the device: each id has a place, as a key has a row. Places
// are numbered differently than on the CPU; nothing depends on these numbers. Order of work, thread safety
// and memory are as for KeyDirectory.
class DeviceWaiting {
 public:
  explicit DeviceWaiting(DeviceAllocator* allocator)
      : directory_(allocator), counts_(allocator), last_steps_(allocator), changes_(allocator) {}

  int64_t size() const { return directory_.size(); }
  int64_t limit() const { return directory_.row_limit(); }
  int64_t bytes() const { return directory_.bytes() + counts_.bytes() + last_steps_.bytes(); }
  WaitingView view() const { return {directory_.view(), counts_.view(), last_steps_.view()}; }
  // Starts to track changes. ResourceExhausted if memory runs out; nothing has changed then.
  Status TrackChanges(cudaStream_t stream) { return changes_.Start(stream, counts_.rows()); }
  DeviceRowChanges& changes() { return changes_; }

  // Makes room for `insertions` new ids and `erasures` erasures. ResourceExhausted if memory runs out; what
  // has grown by then stays larger.
  Status Reserve(cudaStream_t stream, int64_t insertions, int64_t erasures);

  // Sends what Insert needs to the device, in memory that is returned: *new_ids gets everything but its keys
  // and rows, for `n` new ids once `erased` places were erased. Needs a Reserve.
  StatusOr<DeviceBuffer<char>> PrepareInsert(cudaStream_t stream, DeviceAllocator* scratch,
                                             StagedUpload* upload, int64_t n, int64_t erased,
                                             NewRows* new_ids) const;
  // Assigns the places new_ids.rows to the ids new_ids.keys, which are absent and distinct. Needs that
  // PrepareInsert, and no other memory.
  Status Insert(cudaStream_t stream, const NewRows& new_ids);

  // Places of ids, with room for as many keys.
  struct Places {
    DeviceBuffer<int64_t> memory;
    int64_t* places = nullptr;
    int64_t* keys = nullptr;
    int64_t n = 0;
  };
  // Finds the places of those of keys[n] that wait, each once, and makes room to erase them; keys may repeat.
  // Waits for the device.
  Status FindPlaces(cudaStream_t stream, DeviceAllocator* scratch, RoundTrip* round_trip, const int64_t* keys,
                    int64_t n, Places* found);
  // Erases places[n], distinct and in use. keys[n] is scratch. Needs a Reserve, and no other memory.
  Status ErasePlaces(cudaStream_t stream, int64_t* places, int64_t n, int64_t* keys);
  Status ErasePlaces(cudaStream_t stream, const Places& found) {
    return ErasePlaces(stream, found.places, found.n, found.keys);
  }
  // FindPlaces and ErasePlaces.
  Status Erase(cudaStream_t stream, DeviceAllocator* scratch, RoundTrip* round_trip, const int64_t* keys,
               int64_t n);
  // Sets the counts and last steps of keys[n], which are distinct and may be new. Waits for the device.
  Status Set(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload, RoundTrip* round_trip,
             const int64_t* keys, const int64_t* counts, const int64_t* last_steps, int64_t n);

  // Adds `by` to all last steps, bounded below by 0.
  Status MoveLastSteps(cudaStream_t stream, int64_t by) {
    return AddToSteps(stream, last_steps_.view(), limit(), by);
  }

 private:
  KeyDirectory directory_;
  DeviceColumn<int64_t> counts_;
  DeviceColumn<int64_t> last_steps_;
  DeviceRowChanges changes_;
};

}  // namespace sok

#endif  // SOK_CUDA_TABLE_DEVICE_WAITING_H_
