// Insertion of keys in kernels. Only .cu files include this header.
#ifndef SOK_CUDA_INDEX_INSERT_KEY_H_
#define SOK_CUDA_INDEX_INSERT_KEY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <cuda/atomic>

#include "cuda/index/key_index_view.h"

namespace sok {
namespace key_index {

// ---- Digests while several threads change them: words of 32 bits, each in one step. ----

__device__ __forceinline__ uint32_t* WordsOf(const KeyBuckets& index, uint32_t bucket) {
  return reinterpret_cast<uint32_t*>(index.digests + bucket);
}

__device__ __forceinline__ uint32_t LoadWord(uint32_t* word) {
  return cuda::atomic_ref<uint32_t, cuda::thread_scope_device>(*word).load(cuda::std::memory_order_relaxed);
}

__device__ __forceinline__ uint4 LoadDigests(const KeyBuckets& index, uint32_t bucket) {
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

// Adds an absent key with this hash. Other threads may insert other keys in the same launch. Does nothing if
// all places are occupied. `index` should be in registers: otherwise the compiler must assume that atomic
// functions change it.
__device__ __forceinline__ void Insert(const KeyBuckets& index, uint64_t hash, longlong2 key_and_row) {
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
      index.slots[static_cast<int64_t>(bucket) * KeyBuckets::kPlaces + number * 4 + place] = key_and_row;
      return;
    }
    bucket = NextBucket(bucket, index.buckets);
  }
}

}  // namespace key_index

// Adds an absent key, as above.
__device__ __forceinline__ void InsertKey(const KeyIndexView& index, int64_t key, int64_t row) {
  const uint64_t hash = key_index::HashOf(key);
  key_index::Insert(index.Of(hash), hash, {key, row});
}

}  // namespace sok

#endif  // SOK_CUDA_INDEX_INSERT_KEY_H_
