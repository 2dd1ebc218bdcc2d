#ifndef SOK_CC_CPU_POOLING_BAG_RANGES_H_
#define SOK_CC_CPU_POOLING_BAG_RANGES_H_

#include <cstdint>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/vectorize.h"

namespace sok {

// The number of bags that `offsets` describes: bag b holds occurrences [offsets[b], offsets[b + 1]).
inline int64_t NumBags(Span<const int64_t> offsets) { return offsets.empty() ? 0 : offsets.size() - 1; }

// The nanoseconds that it takes to add or copy a row: in cache about one per four floats. A row in memory
// takes a few times as long.
inline int64_t RowCost(int64_t dim) { return 4 + dim / 4; }

// Calls body(first, last) on disjoint ranges that together cover all bags, split so that each has about the
// same sum of bags and occurrences: with skewed ids one bag may hold half of all occurrences, and ranges with
// equal numbers of bags would leave other threads idle. `ns_per_occurrence` is the cost of one occurrence.
template <typename Body>
void ParallelForBagRanges(Executor& executor, Span<const int64_t> offsets, int64_t ns_per_occurrence,
                          const Body& body) {
  const int64_t bags = NumBags(offsets);
  if (bags == 0) return;
  // The cost of a bag is its number of occurrences plus one. Bag b starts at position
  // offsets[b] - offsets[0] + b of the total cost, and belongs to the range in which that position lies.
  const auto first_bag_from = [&](int64_t position) {
    int64_t low = 0;
    int64_t high = bags;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (offsets[middle] - offsets[0] + middle < position) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  const int64_t total = offsets[bags] - offsets[0] + bags;
  executor.ParallelFor(total, ns_per_occurrence, [&](int64_t begin, int64_t end) {
    const int64_t first = first_bag_from(begin);
    const int64_t last = end == total ? bags : first_bag_from(end);
    if (first < last) body(first, last);
  });
}

// The same with a body that is compiled for the processor's widest vectors: see RunVectorized.
template <typename Body>
void ParallelForBags(Executor& executor, Span<const int64_t> offsets, int64_t ns_per_occurrence,
                     const Body& body) {
  ParallelForBagRanges(executor, offsets, ns_per_occurrence,
                       [&](int64_t first, int64_t last) { RunVectorized([&] { body(first, last); }); });
}

}  // namespace sok

#endif  // SOK_CC_CPU_POOLING_BAG_RANGES_H_
