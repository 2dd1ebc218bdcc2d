#include <cuda/atomic>

#include "cuda/base/launch.h"
#include "cuda/index/key_index.h"

namespace sok {
namespace {

using key_index::DigestOf;
using key_index::Found;
using key_index::HashOf;
using key_index::HomeOf;
using key_index::kErased;
using key_index::NextBucket;
using key_index::ZeroBytes;

constexpr int kPlaces = KeyIndexView::kPlaces;

// ---- Digests while several threads change them: words of 32 bits, each in one step. ----

__device__ __forceinline__ uint32_t* WordsOf(const KeyIndexView& index, uint32_t bucket) {
  return reinterpret_cast<uint32_t*>(index.digests + bucket);
}

__device__ __forceinline__ uint32_t LoadWord(uint32_t* word) {
  return cuda::atomic_ref<uint32_t, cuda::thread_scope_device>(*word).load(cuda::std::memory_order_relaxed);
}

__device__ __forceinline__ uint4 LoadDigests(const KeyIndexView& index, uint32_t bucket) {
  uint32_t* const words = WordsOf(index, bucket);
  return {LoadWord(words), LoadWord(words + 1), LoadWord(words + 2), LoadWord(words + 3)};
}

// Takes a free place among the four of a word that had the digests `seen`. Returns it, or -1.
__device__ __forceinline__ int TakePlace(uint32_t* word, uint32_t seen, uint32_t digest) {
  // Empty places, and places of erased keys.
  while (const uint32_t free = ZeroBytes(seen & 0xfefefefeu)) {
    const int shift = (__ffs(static_cast<int>(free)) - 1) / 8 * 8;
    const uint32_t taken = (seen & ~(0xffu << shift)) | digest << shift;
    const uint32_t old = atomicCAS(word, seen, taken);
    if (old == seen) return shift / 8;
    seen = old;
  }
  return -1;
}

// Other threads may insert other keys in the same launch. Does nothing if all places are occupied.
__device__ __forceinline__ void InsertKey(const KeyIndexView& index, int64_t key, int64_t row) {
  const uint64_t hash = HashOf(key);
  const uint32_t digest = DigestOf(hash);
  uint32_t bucket = HomeOf(hash, index.buckets);
  for (uint32_t searched = 0; searched < index.buckets; ++searched) {
    for (int i = 0; i < 4; ++i) {
      // Keys that are inserted at the same time, as a whole bucket is when an index grows, start at different
      // words.
      const int number = static_cast<int>(hash + i) & 3;
      uint32_t* const word = WordsOf(index, bucket) + number;
      const int place = TakePlace(word, LoadWord(word), digest);
      if (place < 0) continue;
      index.slots[static_cast<int64_t>(bucket) * kPlaces + number * 4 + place] = {key, row};
      return;
    }
    bucket = NextBucket(bucket, index.buckets);
  }
}

// Other threads may erase other keys in the same launch. Returns the row that the key had.
__device__ __forceinline__ int64_t EraseKey(const KeyIndexView& index, int64_t key) {
  const Found found =
      key_index::Search(index, key, [&](uint32_t bucket) { return LoadDigests(index, bucket); });
  if (found.slot < 0) return kAbsentRow;
  uint32_t* const word = reinterpret_cast<uint32_t*>(index.digests) + found.slot / 4;
  const int shift = static_cast<int>(found.slot % 4) * 8;
  // No search goes beyond a bucket with an empty place, so another empty place does no harm. Other threads
  // decide the same way: in this launch, a bucket without an empty place gets none, and a bucket that has one
  // keeps it.
  if (found.bucket_has_empty) {
    atomicAnd(word, ~(0xffu << shift));
  } else {
    atomicXor(word, (DigestOf(HashOf(key)) ^ kErased) << shift);
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
  const int64_t n = keys.size();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t at = keys.At(i);
    rows[at] = FindRow(keys.IndexOf(i), keys.Key(at));
  }
}

template <typename Keys>
__global__ void __launch_bounds__(kThreadsPerBlock) InsertKernel(Keys keys, const int64_t* rows) {
  const int64_t n = keys.size();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t at = keys.At(i);
    const int64_t row = rows[at];
    if (row < 0) continue;
    // In registers: otherwise the compiler must assume that atomic functions change it.
    const KeyIndexView index = keys.IndexOf(i);
    InsertKey(index, keys.Key(at), row);
  }
}

template <typename Keys>
__global__ void __launch_bounds__(kThreadsPerBlock) EraseKernel(Keys keys, int64_t* rows) {
  const int64_t n = keys.size();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t at = keys.At(i);
    rows[at] = EraseKey(keys.IndexOf(i), keys.Key(at));
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock) CopyKeysKernel(KeyIndexView from, KeyIndexView to) {
  const auto* const digests = reinterpret_cast<const unsigned char*>(from.digests);
  const int64_t n = static_cast<int64_t>(from.buckets) * kPlaces;
  for (int64_t slot = ThreadOfGrid(); slot < n; slot += ThreadsOfGrid()) {
    if (digests[slot] <= kErased) continue;
    const longlong2 key_and_row = from.slots[slot];
    InsertKey(to, key_and_row.x, key_and_row.y);
  }
}

}  // namespace

Status CopyKeys(cudaStream_t stream, const KeyIndexView& from, const KeyIndexView& to) {
  const int64_t places = static_cast<int64_t>(from.buckets) * kPlaces;
  return Launch("CopyKeys", stream, ShapeFor(places), CopyKeysKernel, from, to);
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
