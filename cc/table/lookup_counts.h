#ifndef SOK_CC_TABLE_LOOKUP_COUNTS_H_
#define SOK_CC_TABLE_LOOKUP_COUNTS_H_

#include <atomic>
#include <cstdint>

namespace sok {

// Statistics of the training lookups in a table since it was made, on one rank. Over several ranks `ids`
// counts the ids that this rank looked up and `bytes_sent` what it sent to others; the other numbers count
// the ids that it owns, whichever rank looked them up, and those of replicas on rank 0. So the sums over
// ranks equal the numbers of one process with all batches.
//
// Thread-safe. Each number is exact, but they are not read at one moment.
struct LookupCounts {
  std::atomic<int64_t> ids{0};           // looked up, with duplicates
  std::atomic<int64_t> distinct_ids{0};  // distinct within each group lookup
  std::atomic<int64_t> admitted_ids{0};  // ids that got a row
  std::atomic<int64_t> filtered_ids{0};  // distinct_ids without a row because of admission
  std::atomic<int64_t> bytes_sent{0};    // requests, rows and gradients, without the messages' headers

  static void Add(std::atomic<int64_t>& count, int64_t amount) {
    count.fetch_add(amount, std::memory_order_relaxed);
  }
};

}  // namespace sok

#endif  // SOK_CC_TABLE_LOOKUP_COUNTS_H_
