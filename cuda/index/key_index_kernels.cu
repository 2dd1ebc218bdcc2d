#include <algorithm>

#include "cuda/base/launch.h"
#include "cuda/index/insert_key.h"
#include "cuda/index/key_index.h"

namespace sok {
namespace {

using key_index::DigestOf;
using key_index::Found;
using key_index::HashOf;
using key_index::HomeOf;
using key_index::kErased;
using key_index::LoadDigests;
using key_index::PlacesEqualTo;

constexpr int kPlaces = KeyIndexView::kPlaces;

// Other threads may erase other keys in the same launch. Returns the row that the key had.
__device__ __forceinline__ int64_t EraseKey(const KeyIndexView& index, int64_t key) {
  const uint64_t hash = HashOf(key);
  const KeyBuckets buckets = index.Of(hash);
  const Found found =
      key_index::Search(buckets, hash, key, [&](uint32_t bucket) { return LoadDigests(buckets, bucket); });
  if (found.slot < 0) return kAbsentRow;
  uint32_t* const word = reinterpret_cast<uint32_t*>(buckets.digests) + found.slot / 4;
  const int shift = static_cast<int>(found.slot % 4) * 8;
  // No search goes beyond a bucket with an empty place, so another empty place does no harm. Other threads
  // decide the same way: in this launch, a bucket without an empty place gets none, and a bucket that has one
  // keeps it.
  if (found.bucket_has_empty) {
    atomicAnd(word, ~(0xffu << shift));
  } else {
    atomicXor(word, (DigestOf(hash) ^ kErased) << shift);
  }
  return found.row;
}

// ---- Which keys a kernel works on. ----

struct OneIndex {
  KeyIndexView index;
  const int64_t* keys;
  int64_t n;

  __device__ int64_t size() const { return n; }
  __device__ int64_t At(int64_t i) const { return i; }
  __device__ int64_t Key(int64_t at) const { return keys[at]; }
  __device__ const KeyIndexView& IndexOf(int64_t) const { return index; }
};

struct ManyIndexes {
  GroupKeys group;

  __device__ int64_t size() const { return group.begin[group.tables]; }
  __device__ int64_t At(int64_t i) const { return group.which == nullptr ? i : group.which[i]; }
  __device__ int64_t Key(int64_t at) const { return group.keys[at]; }
  __device__ const KeyIndexView& IndexOf(int64_t i) const {
    return group.views[PartOf(group.begin, group.tables, i)];
  }
};

template <typename Keys>
__global__ void __launch_bounds__(kThreadsPerBlock) FindKernel(Keys keys, int64_t* rows) {
  AwaitPreviousKernels();
  const int64_t n = keys.size();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t at = keys.At(i);
    rows[at] = FindRow(keys.IndexOf(i), keys.Key(at));
  }
}

template <typename Keys>
__global__ void __launch_bounds__(kThreadsPerBlock) InsertKernel(Keys keys, const int64_t* rows) {
  AwaitPreviousKernels();
  const int64_t n = keys.size();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t at = keys.At(i);
    const int64_t row = rows[at];
    if (row < 0) continue;
    const KeyIndexView index = keys.IndexOf(i);
    InsertKey(index, keys.Key(at), row);
  }
}

template <typename Keys>
__global__ void __launch_bounds__(kThreadsPerBlock) EraseKernel(Keys keys, int64_t* rows) {
  AwaitPreviousKernels();
  const int64_t n = keys.size();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t at = keys.At(i);
    rows[at] = EraseKey(keys.IndexOf(i), keys.Key(at));
  }
}

// Inserts the key in a place of `from`, if there is one whose home is in [begin, end), into `to`.
__device__ __forceinline__ void MoveKey(const KeyBuckets& from, int64_t slot, uint32_t begin, uint32_t end,
                                        const KeyBuckets& to) {
  if (reinterpret_cast<const unsigned char*>(from.digests)[slot] <= kErased) return;
  const longlong2 key_and_row = from.slots[slot];
  const uint64_t hash = HashOf(key_and_row.x);
  const uint32_t home = HomeOf(hash, from.buckets);
  if (home >= begin && home < end) key_index::Insert(to, hash, key_and_row);
}

// The number of resident blocks to compile for: with more, registers spill.
constexpr int kResidentMoves = 6;

__global__ void __launch_bounds__(kThreadsPerBlock, kResidentMoves)
    MoveKeysKernel(KeyBuckets from, uint32_t begin, uint32_t end, KeyBuckets to) {
  AwaitPreviousKernels();
  const int64_t first = static_cast<int64_t>(begin) * kPlaces;
  const int64_t last = static_cast<int64_t>(end) * kPlaces;
  for (int64_t slot = first + ThreadOfGrid(); slot < last; slot += ThreadsOfGrid()) {
    MoveKey(from, slot, begin, end, to);
  }
  // Keys that overflowed from these buckets are in the following ones, up to the first with an empty place. A
  // few threads go through them: there is one such run in a launch.
  if (ThreadOfGrid() >= kPlaces) return;
  uint32_t bucket = end - 1;
  while (PlacesEqualTo(from.digests[bucket], 0) == 0) {
    bucket = key_index::NextBucket(bucket, from.buckets);
    if (bucket == begin) return;
    MoveKey(from, static_cast<int64_t>(bucket) * kPlaces + ThreadOfGrid(), begin, end, to);
  }
}

// The most threads that count tombstones: each reads many buckets, so that few add to the sum.
constexpr int64_t kMostCounters = 1 << 17;

__global__ void __launch_bounds__(kThreadsPerBlock)
    CountTombstonesKernel(const uint4* digests, int64_t buckets, uint32_t* sum) {
  AwaitPreviousKernels();
  uint32_t mine = 0;
  for (int64_t bucket = ThreadOfGrid(); bucket < buckets; bucket += ThreadsOfGrid()) {
    mine += __popc(PlacesEqualTo(digests[bucket], kErased * 0x01010101u));
  }
  mine = ReduceInWarp(mine, [](uint32_t a, uint32_t b) { return a + b; });
  if (threadIdx.x % kLanesOfWarp == 0 && mine > 0) atomicAdd(sum, mine);
}

}  // namespace

Status CountTombstones(cudaStream_t stream, const KeyBuckets& index, uint32_t* sum) {
  return Launch("CountTombstones", stream, ShapeFor(std::min<int64_t>(index.buckets, kMostCounters)),
                CountTombstonesKernel, index.digests, static_cast<int64_t>(index.buckets), sum);
}

Status MoveKeys(cudaStream_t stream, const KeyBuckets& from, uint32_t begin, uint32_t end,
                const KeyBuckets& to) {
  const int64_t places = static_cast<int64_t>(end - begin) * kPlaces;
  return Launch("MoveKeys", stream, ShapeFor(places), MoveKeysKernel, from, begin, end, to);
}

Status FindKeys(cudaStream_t stream, const KeyIndexView& index, const int64_t* keys, int64_t n,
                int64_t* rows) {
  return Launch("FindKeys", stream, ShapeFor(n), FindKernel<OneIndex>, OneIndex{index, keys, n}, rows);
}

Status FindKeys(cudaStream_t stream, const GroupKeys& keys, int64_t* rows) {
  return Launch("FindKeys", stream, ShapeFor(keys.max_keys), FindKernel<ManyIndexes>, ManyIndexes{keys},
                rows);
}

Status InsertKeys(cudaStream_t stream, const KeyIndexView& index, const int64_t* keys, const int64_t* rows,
                  int64_t n) {
  return Launch("InsertKeys", stream, ShapeFor(n), InsertKernel<OneIndex>, OneIndex{index, keys, n}, rows);
}

Status InsertKeys(cudaStream_t stream, const GroupKeys& keys, const int64_t* rows) {
  return Launch("InsertKeys", stream, ShapeFor(keys.max_keys), InsertKernel<ManyIndexes>, ManyIndexes{keys},
                rows);
}

Status EraseKeys(cudaStream_t stream, const KeyIndexView& index, const int64_t* keys, int64_t n,
                 int64_t* rows) {
  return Launch("EraseKeys", stream, ShapeFor(n), EraseKernel<OneIndex>, OneIndex{index, keys, n}, rows);
}

Status EraseKeys(cudaStream_t stream, const GroupKeys& keys, int64_t* rows) {
  return Launch("EraseKeys", stream, ShapeFor(keys.max_keys), EraseKernel<ManyIndexes>, ManyIndexes{keys},
                rows);
}

}  // namespace sok
