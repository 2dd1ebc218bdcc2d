// A KeyIndex as kernels see it. Only .cu files use the functions.
//
// Layout: buckets of 16 places. A bucket has 16 digests, one byte each, and 16 slots of a key and its row. A
// digest is 0 if the place is empty, 1 if a key was erased while its bucket had no empty place, and otherwise
// 2 to 255, from the key's hash.
//
// A search reads the bucket's digests in one load of 16 bytes, compares them with its own digest in one
// thread, and reads the slots of those that are equal. So a hit costs two sectors of 32 bytes: one of
// digests, and one with the slot's key and row. A tile of threads that compares the keys of a bucket directly
// reads 128 bytes of keys for 16 places and then a sector of rows. Digests that are equal by chance cost
// another sector in 6 % of the searched buckets.
//
// A key is in its home bucket or, if that was full, in one of the next (linear probing over buckets): a
// search ends at a bucket with a digest 0. The home is the hash's high half, scaled to the number of buckets,
// which need not be a power of two; the digest comes from the low half.
#ifndef SOK_CUDA_INDEX_KEY_INDEX_VIEW_H_
#define SOK_CUDA_INDEX_KEY_INDEX_VIEW_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/hash.h"
#include "cc/base/host_device.h"

namespace sok {

// The row that an absent key has.
constexpr int64_t kAbsentRow = -1;

// Pointers to device memory. Without buckets there are no keys.
struct KeyBuckets {
  static constexpr int kPlaces = 16;  // of a bucket

  uint4* digests = nullptr;    // [buckets]
  longlong2* slots = nullptr;  // [buckets * kPlaces]: key and row
  uint32_t buckets = 0;
};

namespace key_index {

constexpr uint32_t kErased = 1;

SOK_HOST_DEVICE uint64_t HashOf(int64_t key) { return Mix64(static_cast<uint64_t>(key)); }

SOK_HOST_DEVICE uint32_t HomeOf(uint64_t hash, uint32_t buckets) {
  return static_cast<uint32_t>((hash >> 32) * buckets >> 32);
}

// In 2..255.
SOK_HOST_DEVICE uint32_t DigestOf(uint64_t hash) {
  return 2 + static_cast<uint32_t>((hash & 0xffffffffu) * 254 >> 32);
}

SOK_HOST_DEVICE uint32_t NextBucket(uint32_t bucket, uint32_t buckets) {
  return bucket + 1 == buckets ? 0 : bucket + 1;
}

// The high bit of every byte of `word` that is 0; the other bits are 0.
SOK_HOST_DEVICE uint32_t ZeroBytes(uint32_t word) {
  return ~(((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word | 0x7f7f7f7fu);
}

// A set of a bucket's places as bits: place 4 w + b, which is byte b of word w, is bit 8 b + w. In this
// order, the high bits of the four words' bytes only have to be shifted.
SOK_HOST_DEVICE uint32_t ToPlaces(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
  return w0 >> 7 | w1 >> 6 | w2 >> 5 | w3 >> 4;
}
SOK_HOST_DEVICE int PlaceOfBit(int bit) { return (bit & 7) * 4 + (bit >> 3); }

// The places whose digest is the byte that `pattern` repeats four times.
SOK_HOST_DEVICE uint32_t PlacesEqualTo(const uint4& digests, uint32_t pattern) {
  return ToPlaces(ZeroBytes(digests.x ^ pattern), ZeroBytes(digests.y ^ pattern),
                  ZeroBytes(digests.z ^ pattern), ZeroBytes(digests.w ^ pattern));
}

// The result of a search: the place of its key, if found.
struct Found {
  int64_t slot = -1;  // bucket * kPlaces + place
  int64_t row = kAbsentRow;
  bool bucket_has_empty = false;
};

}  // namespace key_index

// An index, valid until its next Reserve: its buckets and, while it grows, those that it had.
struct KeyIndexView : KeyBuckets {
  KeyBuckets old;
  // Of the keys whose home is below this in `old`, none is in `old`. Without old buckets every home there is
  // 0.
  uint32_t moved = 1;

  // The buckets that have the key with this hash, if the index has it.
  SOK_HOST_DEVICE KeyBuckets Of(uint64_t hash) const {
    const bool is_moved = key_index::HomeOf(hash, old.buckets) < moved;
    KeyBuckets of;
    of.digests = is_moved ? digests : old.digests;
    of.slots = is_moved ? slots : old.slots;
    of.buckets = is_moved ? buckets : old.buckets;
    return of;
  }
};

#if defined(__CUDACC__) || defined(SOK_CUDA_ON_HOST)

namespace key_index {

// Searches for a key with this hash; load_digests(bucket) reads the digests of a bucket.
template <typename LoadDigests>
__device__ __forceinline__ Found Search(const KeyBuckets& index, uint64_t hash, int64_t key,
                                        const LoadDigests& load_digests) {
  const uint32_t pattern = DigestOf(hash) * 0x01010101u;
  uint32_t bucket = HomeOf(hash, index.buckets);
  // In a full index no digest ends the search.
  for (uint32_t searched = 0; searched < index.buckets; ++searched) {
    const uint4 digests = load_digests(bucket);
    const bool has_empty = PlacesEqualTo(digests, 0) != 0;
    for (uint32_t equal = PlacesEqualTo(digests, pattern); equal != 0; equal &= equal - 1) {
      const int64_t slot =
          static_cast<int64_t>(bucket) * KeyBuckets::kPlaces + PlaceOfBit(__ffs(static_cast<int>(equal)) - 1);
      const longlong2 key_and_row = index.slots[slot];
      if (key_and_row.x == key) return {slot, key_and_row.y, has_empty};
    }
    if (has_empty) break;
    bucket = NextBucket(bucket, index.buckets);
  }
  return {};
}

}  // namespace key_index

// The row of `key`, or kAbsentRow. No other thread may change the index in the same launch.
__device__ __forceinline__ int64_t FindRow(const KeyIndexView& index, int64_t key) {
  const uint64_t hash = key_index::HashOf(key);
  const KeyBuckets buckets = index.Of(hash);
  return key_index::Search(buckets, hash, key, [&](uint32_t bucket) { return buckets.digests[bucket]; }).row;
}

#endif  // defined(__CUDACC__) || defined(SOK_CUDA_ON_HOST)

}  // namespace sok

#endif  // SOK_CUDA_INDEX_KEY_INDEX_VIEW_H_
