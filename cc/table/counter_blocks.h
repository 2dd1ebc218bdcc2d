#ifndef SOK_CC_TABLE_COUNTER_BLOCKS_H_
#define SOK_CC_TABLE_COUNTER_BLOCKS_H_

#include <cstdint>

#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/index/id_index.h"
#include "cc/store/slabs.h"

namespace sok {

// Blocks of counters, in order of their numbers. bytes has kBloomBlockBytes for each.
using VisitBlocks = FunctionRef<Status(Span<const int64_t> blocks, Span<const char> bytes)>;

// The counters of a Bloom filter are moved in blocks of this size, a cache line.
constexpr int64_t kBloomBlockBytes = 64;

bool IsZeroBlock(const char* block);

// Calls visit on those of the consecutive blocks from `first` on in `bytes` that are not zero, in pieces,
// until an error. bytes.size() is a multiple of kBloomBlockBytes.
Status VisitNonZeroBlocks(int64_t first, Span<const char> bytes, VisitBlocks visit);

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

}  // namespace sok

#endif  // SOK_CC_TABLE_COUNTER_BLOCKS_H_
