// A counting Bloom filter on every engine: its shape, which counters belong to an id, and how counters are
// moved.
#ifndef SOK_CC_TABLE_BLOOM_FILTER_H_
#define SOK_CC_TABLE_BLOOM_FILTER_H_

#include <cstdint>

#include "cc/base/function_ref.h"
#include "cc/base/hash.h"
#include "cc/base/host_device.h"
#include "cc/base/span.h"
#include "cc/base/status.h"

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

// Blocks of counters, in order of their numbers. bytes has kBloomBlockBytes for each.
using VisitBlocks = FunctionRef<Status(Span<const int64_t> blocks, Span<const char> bytes)>;

// Counters are moved in blocks of this size, a cache line.
constexpr int64_t kBloomBlockBytes = 64;

// The size of a filter. It follows DeepRec: hashes = ceil(log2(1 / p)), counters = ceil(hashes * max_elements
// / ln 2), so that a fraction of about p of `max_elements` ids share all of their counters with other ids.
struct BloomShape {
  int hashes;
  int64_t counters;

  // The largest filter that is an array in memory and in checkpoints. Of a larger one, both have only the
  // blocks that are not zero.
  static constexpr int64_t kMaxArrayBytes = int64_t{16} << 20;

  // InvalidArgument unless 1 <= max_elements <= 2^40, 1e-15 <= p < 1, and counter_bits is 8, 16, 32 or 64.
  static Status Check(int64_t max_elements, double p, int counter_bits);
  // Of a filter whose arguments pass Check.
  static BloomShape Of(int64_t max_elements, double p);

  static bool IsInBlocks(const BloomShape& shape, int counter_bits) {
    return shape.counters > kMaxArrayBytes / (counter_bits / 8);
  }
  // The number of blocks of the whole filter. The bytes of the last block after the last counter are zero.
  static int64_t BlocksOf(int64_t counters, int counter_bits) {
    return (counters - 1) / CountersPerBlock(counter_bits) + 1;
  }
  static int64_t CountersPerBlock(int counter_bits) { return kBloomBlockBytes / (counter_bits / 8); }
  // The largest value of a counter: 2^bits - 1, or 2^63 - 1 for 64 bits.
  static int64_t MaxCount(int counter_bits) {
    return counter_bits == 64 ? INT64_MAX : (int64_t{1} << counter_bits) - 1;
  }
};

// Errors of merging blocks on every engine: whether they are in the range of such a filter, and have `bytes`
// bytes.
Status CheckBloomBlocks(Span<const int64_t> blocks, int64_t bytes, int64_t counters, int counter_bits);

bool IsZeroBlock(const char* block);

// Collects blocks into the pieces that a visitor gets.
class BlockPieces {
 public:
  explicit BlockPieces(VisitBlocks visit);

  Status Add(int64_t block, const char* bytes);
  // Call it after the last Add.
  Status Flush();

 private:
  const VisitBlocks visit_;
  std::vector<int64_t> blocks_;
  std::vector<char> bytes_;
};

// Calls visit on those of the consecutive blocks from `first` on in `bytes` that are not zero, in pieces,
// until an error. bytes.size() is a multiple of kBloomBlockBytes.
Status VisitNonZeroBlocks(int64_t first, Span<const char> bytes, VisitBlocks visit);

}  // namespace sok

#endif  // SOK_CC_TABLE_BLOOM_FILTER_H_
