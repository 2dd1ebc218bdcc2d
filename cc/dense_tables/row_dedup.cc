#include "cc/dense_tables/row_dedup.h"

#include <algorithm>
#include <limits>
#include <new>

#include "cc/base/vectorize.h"

namespace sok {
namespace {

// The array is used for at most this many rows of the table per row of the batch, so the batch bounds its
// memory, which is that of a few hash tables.
constexpr int64_t kMostRowsPerOccurrence = 32;
// One thread fills the array, whereas all threads fill the hash table of a large batch.
constexpr int kMostThreads = 4;
constexpr int64_t kFewOccurrences = 16 << 10;
// How many rows ahead a place is prefetched.
constexpr int64_t kAhead = 16;

bool AllBelow(Span<const int64_t> rows, int64_t limit) {
  bool all = true;
  RunVectorized([&] {
    // A negative number is a large one without its sign.
    for (const int64_t row : rows) all &= static_cast<uint64_t>(row) < static_cast<uint64_t>(limit);
  });
  return all;
}

}  // namespace

Status RowDeduplicator::Run(Executor& executor, Span<const int64_t> rows, int64_t limit,
                            std::vector<int64_t>* unique, Span<int32_t> inverse) {
  const bool is_array_small = limit >= 0 && limit / kMostRowsPerOccurrence <= rows.size() &&
                              rows.size() < std::numeric_limits<int32_t>::max();
  const bool is_one_thread_enough = executor.concurrency() <= kMostThreads || rows.size() < kFewOccurrences;
  if (is_array_small && is_one_thread_enough && AllBelow(rows, limit)) {
    return RunByPlaces(rows, limit, unique, inverse);
  }
  return by_hash_.Run(executor, rows, unique, inverse);
}

Status RowDeduplicator::RunByPlaces(Span<const int64_t> rows, int64_t limit, std::vector<int64_t>* unique,
                                    Span<int32_t> inverse) {
  const int64_t most = std::min(rows.size(), limit);
  try {
    // One more than the distinct rows: each is written before it is known whether it is new.
    if (static_cast<int64_t>(distinct_.size()) < most + 1) distinct_.resize(most + 1);
    if (static_cast<int64_t>(places_.size()) < limit) places_.resize(limit);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("cannot allocate memory for the distinct ones of ", rows.size(), " rows");
  }
  int32_t count = 0;
  // Whether a row is new is hard to predict, so the code does not branch on it.
  for (int64_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) __builtin_prefetch(&places_[rows[i + kAhead]], 1);
    int32_t& place = places_[rows[i]];
    const bool is_new = place == 0;
    distinct_[count] = rows[i];
    count += is_new;
    place = is_new ? count : place;
    inverse[i] = place - 1;
  }
  for (int32_t u = 0; u < count; ++u) places_[distinct_[u]] = 0;
  try {
    unique->assign(distinct_.begin(), distinct_.begin() + count);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("cannot allocate memory for ", count, " distinct rows");
  }
  return OkStatus();
}

}  // namespace sok
