#ifndef SOK_CC_TABLE_LOOKUP_COUNTS_H_
#define SOK_CC_TABLE_LOOKUP_COUNTS_H_

#include <atomic>
#include <cstdint>

namespace sok {

// What training lookups have done with a table of one rank since it was made. Over several ranks `ids` are
// those that this rank asked for and `bytes_sent` what it sent to others; the rest is about the ids that it
// owns, whoever asked, and of replicas is counted on rank 0. So the sums over ranks are those of one process
// on all batches together.
//
// Thread-safe: each number is exact, and several are not of one moment.
struct LookupCounts {
  std::atomic<int64_t> ids{0};           // looked up, duplicates counted
  std::atomic<int64_t> distinct_ids{0};  // of each lookup of a group, duplicates merged
  std::atomic<int64_t> admitted_ids{0};  // that got a row
  std::atomic<int64_t> filtered_ids{0};  // of distinct_ids, those that admission left without a row
  std::atomic<int64_t> bytes_sent{0};    // ids, rows and gradients in messages, without the messages' headers

  static void Add(std::atomic<int64_t>& count, int64_t amount) {
    count.fetch_add(amount, std::memory_order_relaxed);
  }
};

}  // namespace sok

#endif  // SOK_CC_TABLE_LOOKUP_COUNTS_H_
