// Which counters of a counting Bloom filter belong to an id, on host and device.
#ifndef SOK_CC_TABLE_BLOOM_PLACES_H_
#define SOK_CC_TABLE_BLOOM_PLACES_H_

#include <cstdint>

#include "cc/base/hash.h"
#include "cc/base/host_device.h"

namespace sok {

// The most hashes of a filter, whose probability is at least 1e-15.
constexpr int kMaxBloomHashes = 50;

// The distinct counters of an id among `counters`, each by a hash of its own: fills at[] and returns their
// number, at most `hashes`.
SOK_HOST_DEVICE int BloomPlaces(int64_t id, int hashes, int64_t counters, int64_t* at) {
  const uint64_t start = Mix64(static_cast<uint64_t>(id) ^ 0x6a09e667f3bcc908u);
  int count = 0;
  for (int h = 0; h < hashes; ++h) {
    const uint64_t hash = Mix64(start + static_cast<uint64_t>(h));
    const auto place = static_cast<int64_t>(hash % static_cast<uint64_t>(counters));
    bool is_new = true;
    for (int i = 0; i < count; ++i) is_new = is_new && at[i] != place;
    if (is_new) at[count++] = place;
  }
  return count;
}

}  // namespace sok

#endif  // SOK_CC_TABLE_BLOOM_PLACES_H_
