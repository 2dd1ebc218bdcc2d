// Counting in a Bloom filter. Only .cu files include it.
#ifndef SOK_CUDA_TABLE_BLOOM_KERNELS_H_
#define SOK_CUDA_TABLE_BLOOM_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <cuda/atomic>

#include "cc/table/bloom_filter.h"
#include "cuda/table/device_bloom.h"

namespace sok {

__device__ __forceinline__ uint64_t BloomCounter(const BloomView& bloom, int64_t place) {
  switch (bloom.bits) {
    case 8:
      return static_cast<const uint8_t*>(bloom.counters)[place];
    case 16:
      return static_cast<const uint16_t*>(bloom.counters)[place];
    case 32:
      return static_cast<const uint32_t*>(bloom.counters)[place];
    default:
      return static_cast<const uint64_t*>(bloom.counters)[place];
  }
}

// The value of a word that other threads change meanwhile.
template <typename Word>
__device__ __forceinline__ Word LoadRelaxed(Word* word) {
  return cuda::atomic_ref<Word, cuda::thread_scope_device>(*word).load(cuda::std::memory_order_relaxed);
}

// Replaces a counter by change(counter), in one step for other threads.
template <typename Change>
__device__ __forceinline__ void ChangeBloomCounter(const BloomView& bloom, int64_t place,
                                                   const Change& change) {
  if (bloom.bits == 64) {
    auto* const word = static_cast<unsigned long long*>(bloom.counters) + place;
    unsigned long long seen = LoadRelaxed(word);
    for (;;) {
      const unsigned long long old = atomicCAS(word, seen, change(static_cast<uint64_t>(seen)));
      if (old == seen) return;
      seen = old;
    }
  }
  // A counter in its word of 32 bits.
  const int64_t bit = place * bloom.bits;
  uint32_t* const word = static_cast<uint32_t*>(bloom.counters) + bit / 32;
  const int shift = static_cast<int>(bit % 32);
  const uint32_t mask = bloom.bits == 32 ? ~0u : (1u << bloom.bits) - 1;
  uint32_t seen = LoadRelaxed(word);
  for (;;) {
    const auto changed = static_cast<uint32_t>(change(static_cast<uint64_t>(seen >> shift & mask)));
    const uint32_t old = atomicCAS(word, seen, (seen & ~(mask << shift)) | changed << shift);
    if (old == seen) return;
    seen = old;
  }
}

__device__ __forceinline__ int64_t BloomCount(const BloomView& bloom, int64_t id) {
  int64_t at[kMaxBloomHashes];
  const int places = BloomPlaces(id, bloom.hashes, bloom.count, at);
  uint64_t least = bloom.max_count;
  for (int i = 0; i < places; ++i) {
    const uint64_t counter = BloomCounter(bloom, at[i]);
    least = counter < least ? counter : least;
  }
  return static_cast<int64_t>(least);
}

__device__ __forceinline__ void AddToBloom(const BloomView& bloom, int64_t id, int64_t count) {
  int64_t at[kMaxBloomHashes];
  const int places = BloomPlaces(id, bloom.hashes, bloom.count, at);
  for (int i = 0; i < places; ++i) {
    ChangeBloomCounter(bloom, at[i], [&](uint64_t counter) {
      const uint64_t room = bloom.max_count - (counter < bloom.max_count ? counter : bloom.max_count);
      return counter + (room < static_cast<uint64_t>(count) ? room : static_cast<uint64_t>(count));
    });
  }
}

}  // namespace sok

#endif  // SOK_CUDA_TABLE_BLOOM_KERNELS_H_
