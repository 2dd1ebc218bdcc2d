#ifndef SOK_CC_TABLE_BLOOM_COUNTERS_H_
#define SOK_CC_TABLE_BLOOM_COUNTERS_H_

#include <cstdint>

#include "cc/base/huge_pages.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/table/counter_blocks.h"

namespace sok {

// A counting Bloom filter: an array of saturating counters. Each id has `hashes` of them, and its count is
// the smallest one, which is never below what was added for the id unless it is saturated.
//
// The size follows DeepRec: hashes = ceil(log2(1 / p)), counters = ceil(hashes * max_elements / ln 2), so
// that a fraction of about p of `max_elements` ids share all of their counters with other ids.
//
// Programs ask for filters that are larger than memory and use a small part of them. A filter above
// kMaxArrayBytes therefore keeps only the blocks of counters that are not zero.
//
// Thread safety: const members may run at the same time. Move-only.
class BloomCounters {
 public:
  // The largest filter that is an array in memory and in checkpoints. Of a larger one, both have only the
  // blocks that are not zero.
  static constexpr int64_t kMaxArrayBytes = int64_t{16} << 20;

  // InvalidArgument unless 1 <= max_elements <= 2^40, 1e-15 <= p < 1, and counter_bits is 8, 16, 32 or 64.
  static Status Check(int64_t max_elements, double p, int counter_bits);

  // The shape of a filter whose arguments pass Check.
  struct Shape {
    int hashes;
    int64_t counters;
  };
  static Shape ShapeOf(int64_t max_elements, double p);
  static bool IsInBlocks(const Shape& shape, int counter_bits) {
    return shape.counters > kMaxArrayBytes / (counter_bits / 8);
  }
  // The number of blocks of the whole filter. The bytes of the last block after the last counter are zero.
  static int64_t BlocksOf(int64_t counters, int counter_bits) {
    return (counters - 1) / CountersPerBlock(counter_bits) + 1;
  }
  static int64_t CountersPerBlock(int counter_bits) { return kBloomBlockBytes / (counter_bits / 8); }

  // The arguments must pass Check. A filter in blocks takes no memory at first. ResourceExhausted if memory
  // runs out for an array.
  static StatusOr<BloomCounters> Create(int64_t max_elements, double p, int counter_bits);
  // The same, in blocks whatever its size.
  static BloomCounters CreateInBlocks(int64_t max_elements, double p, int counter_bits);

  int hashes() const { return hashes_; }
  int64_t counters() const { return counters_; }
  int counter_bits() const { return counter_bits_; }
  int64_t blocks() const { return BlocksOf(counters_, counter_bits_); }
  // The largest value of a counter: 2^bits - 1, or 2^63 - 1 for 64 bits.
  int64_t max_count() const { return MaxCount(counter_bits_); }
  static int64_t MaxCount(int counter_bits) {
    return counter_bits == 64 ? INT64_MAX : (int64_t{1} << counter_bits) - 1;
  }
  // The memory in use.
  int64_t bytes() const { return in_blocks_ ? sparse_.bytes() : array_.size(); }

  int64_t Count(int64_t id) const;
  // Makes room for Add of these ids. ResourceExhausted if memory runs out; no count is changed.
  Status Reserve(Span<const int64_t> ids);
  // Adds count >= 0 to each of the counters of an id that was reserved.
  void Add(int64_t id, int64_t count);

  // Calls visit on the blocks that are not zero. Counters are unsigned and little-endian.
  Status ForEachNonZeroBlock(VisitBlocks visit) const;
  // Raises each counter in the blocks to at least its value in `bytes`, which has 64 bytes for each block:
  // merges the filters of several ranks. InvalidArgument if a block is outside of the filter or the sizes do
  // not fit; ResourceExhausted if memory runs out. Then nothing was changed.
  Status MergeMax(Span<const int64_t> blocks, Span<const char> bytes);

 private:
  BloomCounters(const Shape& shape, int counter_bits, bool in_blocks)
      : hashes_(shape.hashes),
        counters_(shape.counters),
        counter_bits_(counter_bits),
        in_blocks_(in_blocks) {}

  // addresses[i] = that of block blocks[i]; null if it takes no memory and so is zero.
  void FindBlocks(Span<const int64_t> blocks, Span<char*> addresses) const;

  int hashes_;
  int64_t counters_;
  int counter_bits_;
  bool in_blocks_;
  PageBuffer array_;  // of whole blocks
  CounterBlocks sparse_;
};

// Errors of BloomCounters::MergeMax on every engine: whether blocks of such a filter are in its range, and
// have `bytes` bytes.
Status CheckBloomBlocks(Span<const int64_t> blocks, int64_t bytes, int64_t counters, int counter_bits);

}  // namespace sok

#endif  // SOK_CC_TABLE_BLOOM_COUNTERS_H_
