#ifndef SOK_CC_CPU_TABLE_EVICTION_QUEUE_H_
#define SOK_CC_CPU_TABLE_EVICTION_QUEUE_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/table/row_directory.h"
#include "cc/table/row_changes.h"

namespace sok {

// The order in which a full table evicts rows: smallest (last_used, id) first, or with `by_frequency`
// smallest (frequency, last_used, id). Ids compare as signed numbers.
//
// A heap of the rows' priorities at insertion into the heap. Priorities only rise, so the top is the smallest
// unless its row was used since; then it is reinserted with its present priority. That costs O(log n) for
// each row taken and for each use since, and nothing until the table is full for the first time. Entries of
// freed rows are recognized by their references.
//
// Not thread-safe.
class EvictionQueue {
 public:
  explicit EvictionQueue(bool by_frequency) : by_frequency_(by_frequency) {}

  // Priorities may have fallen: the queue is rebuilt when it is next needed.
  void Invalidate() { built_ = false; }
  // Adds rows that are new in the directory. Needs a Reserve or PrepareTake.
  void Add(const RowDirectory& directory, const RowUsage& usage, Span<const int64_t> rows);

  // Makes room to Add `rows` rows. ResourceExhausted if memory runs out.
  Status Reserve(const RowDirectory& directory, int64_t rows);

  // Makes room to Take `n` rows other than `kept`, and to Add `added` rows afterwards. Errors as above.
  Status PrepareTake(const RowDirectory& directory, const RowUsage& usage, int64_t n, int64_t kept,
                     int64_t added);
  // Removes the first `n` rows that are not among `kept` from the queue and returns them in order; there must
  // be that many. `kept` may contain RowDirectory::kAbsent. The result is valid until the next call.
  Span<const int64_t> Take(const RowDirectory& directory, const RowUsage& usage, int64_t n,
                           Span<const int64_t> kept);

 private:
  struct Entry {
    int64_t first;
    int64_t second;
    int64_t id;
    int64_t reference;

    auto Key() const { return std::tie(first, second, id, reference); }
    // For the standard library's heaps, whose top is the greatest.
    bool operator<(const Entry& other) const { return other.Key() < Key(); }
  };

  Entry EntryOf(const RowDirectory& directory, const RowUsage& usage, int64_t row) const;
  Status Build(const RowDirectory& directory, const RowUsage& usage);
  void Push(const Entry& entry);
  Entry Pop();

  const bool by_frequency_;
  bool built_ = false;
  std::vector<Entry> heap_;
  // The result of Take.
  std::vector<int64_t> taken_;
  std::vector<Entry> put_back_;
  Bitmap is_kept_;  // clear between calls
};

}  // namespace sok

#endif  // SOK_CC_CPU_TABLE_EVICTION_QUEUE_H_
