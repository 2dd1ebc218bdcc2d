#ifndef SOK_CC_TABLE_EVICTION_QUEUE_H_
#define SOK_CC_TABLE_EVICTION_QUEUE_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/table/bitmap.h"
#include "cc/table/row_directory.h"
#include "cc/table/row_usage.h"

namespace sok {

// The order in which rows leave a full table: least (last_used, id) first where frequencies are not kept,
// least (frequency, last_used, id) where they are and `by_frequency`. Ids compare as signed numbers.
//
// A heap of what rows' priorities were when they were put in. Priorities only rise, so the top is the least
// unless its row was used since: then it goes back in as it is now. That costs O(log n) for each row taken
// and for each use since, and nothing until the table is full for the first time. Entries of rows that were
// freed are recognized by their references.
//
// Not thread-safe.
class EvictionQueue {
 public:
  explicit EvictionQueue(bool by_frequency) : by_frequency_(by_frequency) {}

  // Priorities fell, or may have: the queue is built anew when it is next needed.
  void Invalidate() { built_ = false; }
  // Rows that are new in the directory; room was made.
  void Add(const RowDirectory& directory, const RowUsage& usage, Span<const int64_t> rows);

  // Makes room to Add `rows` rows. ResourceExhausted where memory does not suffice.
  Status Reserve(const RowDirectory& directory, int64_t rows);

  // Makes room to Take `n` rows while `kept` are kept, and to Add `added` afterwards. Errors as above.
  Status PrepareTake(const RowDirectory& directory, const RowUsage& usage, int64_t n, int64_t kept,
                     int64_t added);
  // Takes the first `n` rows that are not among `kept`, where RowDirectory::kAbsent may stand too, out of the
  // queue: in order, valid until the next call. There are as many.
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
  // Of Take.
  std::vector<int64_t> taken_;
  std::vector<Entry> put_back_;
  Bitmap is_kept_;  // clear between calls
};

}  // namespace sok

#endif  // SOK_CC_TABLE_EVICTION_QUEUE_H_
