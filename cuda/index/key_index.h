// The map from keys to rows of a table, on the device.
#ifndef SOK_CUDA_INDEX_KEY_INDEX_H_
#define SOK_CUDA_INDEX_KEY_INDEX_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "cc/base/status.h"
#include "cuda/base/allocators.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/event.h"
#include "cuda/index/key_index_view.h"

namespace sok {

// The memory and the sizes of a map from 64-bit keys to row numbers. Every int64 value is a legal key. See
// key_index_view.h for the layout. A place takes 17 bytes.
//
// An index grows piece by piece, so that no step waits for all of it: each Reserve enqueues the move of some
// buckets, in proportion to the keys that were inserted since the last one. It has both arrays until all keys
// have moved, after insertions of 4 % of its keys.
//
// The host knows how many keys there are because callers report what they have enqueued (CountInserted,
// CountErased); it never waits for the device. All work on an index is in the order of one stream, or of
// streams that wait for each other. One thread at a time. Move-only.
class KeyIndex {
 public:
  // The allocator must outlive the index. At most `max_load` of the places are taken by keys, above 0 and at
  // most 1. Buckets that a search reads on average, for present and for absent keys: 1.02 and 1.2 at a load
  // of 0.7, 1.05 and 1.5 at 0.8, 1.2 and 3.8 at 0.9, 1.5 and 13 at 0.95. Without a free place, a search for
  // an absent key reads all of them.
  explicit KeyIndex(DeviceAllocator* allocator, double max_load = 0.9);

  // For kernels that are enqueued on the stream before the next Reserve.
  KeyIndexView view() const { return view_; }

  // Makes room for `keys` keys in total, so that inserting up to that many succeeds. Grows at least by half,
  // if there is enough memory, and also frees the places of erased keys if there are many. Moves all keys if
  // so many new ones do not fit beside those that have not moved yet. Never shrinks. ResourceExhausted if
  // memory runs out; the index then has the same keys and room.
  Status Reserve(cudaStream_t stream, int64_t keys);

  // Call it after InsertKeys with `n` keys, or an EraseKeys that found `n` keys, has been enqueued.
  void CountInserted(int64_t n) {
    size_ += n;
    inserted_ += n;
    old_room_ -= n;
  }
  // CountErased also enqueues a count of the tombstones for a later Reserve, where that may save a rehash.
  void CountErased(cudaStream_t stream, int64_t n);

  int64_t size() const { return size_; }  // keys
  int64_t bytes() const { return memory_.bytes() + old_memory_.bytes(); }
  int64_t places() const { return static_cast<int64_t>(view_.buckets) * KeyIndexView::kPlaces; }
  // At least the number of tombstones: places of erased keys that were not free again at once. Not counted
  // are those in buckets that the index leaves.
  int64_t erased() const { return erased_; }

 private:
  // A count of the tombstones on its way to the host.
  struct TombstoneCount {
    ~TombstoneCount() { (void)copied.Wait().ok(); }
    DeviceBuffer<uint32_t> on_device;  // [1]
    PinnedBuffer<uint32_t> on_host;    // [1]
    Event copied;
  };

  int64_t BucketsFor(int64_t keys) const;
  // Whether tombstones are so few that `keys` keys are found as fast as without them.
  bool IsClean(int64_t keys) const;
  // Whether keys have to move from view_.old.
  bool grows() const { return view_.old.buckets > 0; }
  // Begins to move all keys to new buckets. All keys of a growth before have moved.
  Status BeginGrowth(cudaStream_t stream, int64_t buckets);
  // Moves the keys of this many old buckets, or of all that are left.
  Status Move(cudaStream_t stream, int64_t buckets);
  void EndGrowth(cudaStream_t stream);
  Status EnqueueCount(cudaStream_t stream);
  // Lowers erased_ to what a count says, if it has arrived.
  void TakeCount();

  DeviceAllocator* allocator_;
  double max_load_;
  DeviceBuffer<char> memory_;  // the slots, then the digests
  DeviceBuffer<char> old_memory_;
  KeyIndexView view_;
  int64_t inserted_ = 0;  // keys since the last Move
  int64_t old_room_ = 0;  // new keys that the old buckets may still get
  int64_t size_ = 0;
  int64_t erased_ = 0;
  std::unique_ptr<TombstoneCount> count_;
  bool is_counted_ = false;  // whether a count is on its way, or has arrived
  int64_t erased_since_count_ = 0;
};

// Keys of all tables of a group, ordered by table.
struct GroupKeys {
  int tables = 0;
  const KeyIndexView* views = nullptr;  // [tables], in device memory
  // Table t has the keys in [begin[t], begin[t + 1]): [tables + 1], in device memory. begin[0] is 0.
  const int64_t* begin = nullptr;
  int64_t max_keys = 0;           // an estimate of begin[tables], which the host need not know
  const int64_t* keys = nullptr;  // in device memory
  // If not null, key number i is keys[which[i]], and its row is rows[which[i]]. In device memory.
  const int32_t* which = nullptr;
};

// The launchers below enqueue one kernel. Arrays are in device memory: keys[n] and rows[n] of one index, or
// those of a group. They do nothing for no keys. Internal if a kernel cannot be launched.

// rows[i] = the row of keys[i], or kAbsentRow. Keys may repeat.
Status FindKeys(cudaStream_t stream, const KeyIndexView& index, const int64_t* keys, int64_t n,
                int64_t* rows);
Status FindKeys(cudaStream_t stream, const GroupKeys& keys, int64_t* rows);

// Adds keys[i] with row rows[i]; keys whose row is negative are skipped. The others are absent and distinct
// in their index, and Reserve has made room for them.
Status InsertKeys(cudaStream_t stream, const KeyIndexView& index, const int64_t* keys, const int64_t* rows,
                  int64_t n);
Status InsertKeys(cudaStream_t stream, const GroupKeys& keys, const int64_t* rows);

// Removes keys, which are distinct in their index. rows[i] = the row that keys[i] had, or kAbsentRow.
Status EraseKeys(cudaStream_t stream, const KeyIndexView& index, const int64_t* keys, int64_t n,
                 int64_t* rows);
Status EraseKeys(cudaStream_t stream, const GroupKeys& keys, int64_t* rows);

// What KeyIndex launches besides its public launchers.

// Inserts the keys of `from` whose home is in [begin, end), not empty, into `to`, which contains none of them
// and has room for them. They also stay in `from`.
Status MoveKeys(cudaStream_t stream, const KeyBuckets& from, uint32_t begin, uint32_t end,
                const KeyBuckets& to);

// Adds the number of tombstones, places whose digest says that their key was erased, to *sum, on the device.
Status CountTombstones(cudaStream_t stream, const KeyBuckets& index, uint32_t* sum);

}  // namespace sok

#endif  // SOK_CUDA_INDEX_KEY_INDEX_H_
