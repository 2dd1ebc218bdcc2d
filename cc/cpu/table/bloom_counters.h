#ifndef SOK_CC_CPU_TABLE_BLOOM_COUNTERS_H_
#define SOK_CC_CPU_TABLE_BLOOM_COUNTERS_H_

#include <cstdint>

#include "cc/base/huge_pages.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/index/id_index.h"
#include "cc/cpu/store/slabs.h"
#include "cc/table/bloom_filter.h"

namespace sok {

// A very long array of zeros, of which only the blocks that are changed take memory: such a block takes its
// 64 bytes and 32 to 64 bytes of an index, which finds it by its number.
//
// Counters of a Bloom filter are spread by a hash, so two of them seldom share a page. If the kernel were
// left to provide pages on first access, each counter in use would take 4096 bytes.
//
// Thread safety: const members may run at the same time. Move-only.
class CounterBlocks {
 public:
  CounterBlocks();

  // Makes the blocks changeable. Numbers are not negative, in any order, and may repeat. ResourceExhausted if
  // memory runs out; all contents stay as they are.
  Status Reserve(Span<const int64_t> blocks);

  // addresses[i] = where blocks[i] is, or null if it was not reserved and so is zero.
  void Find(Span<const int64_t> blocks, Span<char*> addresses) const;

  // Calls visit on all blocks that are not zero. Sorts about `at_a_time` blocks at a time, 16 bytes each, so
  // its memory does not grow with their number, as long as they are spread by a hash.
  Status ForEachNonZero(VisitBlocks visit, int64_t at_a_time = int64_t{1} << 22) const;

  // The memory in use.
  int64_t bytes() const { return used_ * kBloomBlockBytes + index_.bytes(); }

 private:
  IdIndex index_;  // from a block's number to its record
  Slabs records_;
  int64_t used_ = 0;  // records
};

// A counting Bloom filter: an array of saturating counters. Each id has `hashes` of them, and its count is
// the smallest one, which is never below what was added for the id unless it is saturated.
//
// Programs ask for filters that are larger than memory and use a small part of them. A filter above
// BloomShape::kMaxArrayBytes therefore keeps only the blocks of counters that are not zero.
//
// Thread safety: const members may run at the same time. Move-only.
class BloomCounters {
 public:
  // The arguments must pass BloomShape::Check. A filter in blocks takes no memory at first. ResourceExhausted
  // if memory runs out for an array.
  static StatusOr<BloomCounters> Create(int64_t max_elements, double p, int counter_bits);
  // The same, in blocks whatever its size.
  static BloomCounters CreateInBlocks(int64_t max_elements, double p, int counter_bits);

  int hashes() const { return hashes_; }
  int64_t counters() const { return counters_; }
  int counter_bits() const { return counter_bits_; }
  int64_t blocks() const { return BloomShape::BlocksOf(counters_, counter_bits_); }
  int64_t max_count() const { return BloomShape::MaxCount(counter_bits_); }
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
  BloomCounters(const BloomShape& shape, int counter_bits, bool in_blocks)
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

}  // namespace sok

#endif  // SOK_CC_CPU_TABLE_BLOOM_COUNTERS_H_
