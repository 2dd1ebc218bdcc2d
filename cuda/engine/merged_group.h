// The distinct ids of a group of tables in one step, and their rows.
#ifndef SOK_CUDA_ENGINE_MERGED_GROUP_H_
#define SOK_CUDA_ENGINE_MERGED_GROUP_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cuda/engine/reusable_array.h"
#include "cuda/table/ids_of_group.h"

namespace sok {

// A table of a merged group: enough to recognize the table, and to see whether rows were erased since.
struct TableOfPlan {
  uint64_t serial = 0;
  int64_t num_erased = 0;
  // DeviceOptimizer::version() when the rows were brought up to date; negative without an optimizer.
  int64_t current_at = -1;
  int64_t dim = 0;
  // The distinct ids of the table are [first, first + unique) of the group's, of which the first `trained`
  // get gradients.
  int64_t first = 0;
  int64_t unique = 0;
  int64_t trained = 0;
};

// The words that a lookup fetches in its round trip, on the device. First the report of the step that made
// the ids, and where each table's distinct ids begin. Then where each table's ids without a row begin, and
// the first id that has no row in a table without hashing. Then, if a table has admission, where its admitted
// ids begin, those of them that were waiting, and the ids that start to wait.
class LookupWords {
 public:
  LookupWords() = default;
  LookupWords(int64_t* words, int64_t report, int tables) : words_(words), report_(report), tables_(tables) {}

  int64_t merge_size() const { return report_ + begins(); }
  int64_t find_size(bool has_filters) const { return begins() + 1 + (has_filters ? 3 * begins() : 0); }

  int64_t* report() const { return words_; }
  int64_t* unique_begin() const { return words_ + report_; }  // [tables + 1], like all that follow
  int64_t* absent_begin() const { return words_ + merge_size(); }
  uint64_t* first_unknown() const { return reinterpret_cast<uint64_t*>(absent_begin() + begins()); }
  int64_t* admitted_begin() const { return absent_begin() + begins() + 1; }
  int64_t* gone_begin() const { return admitted_begin() + begins(); }
  int64_t* fresh_begin() const { return gone_begin() + begins(); }

 private:
  int64_t begins() const { return tables_ + 1; }

  int64_t* words_ = nullptr;
  int64_t report_ = 0;
  int tables_ = 0;
};

// The distinct ids of a group of lookups on one rank, or of all ranks' requests on an owner. A later step may
// reuse the object, on the same stream. One call at a time.
struct MergedGroup {
  IdsOfGroup ids() const { return {num_tables(), words.unique_begin(), keys.data(), unique_count}; }
  int num_tables() const { return static_cast<int>(tables.size()); }
  int64_t occurrences() const { return occurrence_begin.back(); }
  int64_t occurrences(int t) const { return occurrence_begin[t + 1] - occurrence_begin[t]; }
  // Stores the fetched words.unique_begin(): the tables' ranges of distinct ids.
  void TakeUniqueBegin(const int64_t* begin);
  // Enqueues the copy of references to the trained rows of table `t` on the stream.
  Status CopyReferences(cudaStream_t stream, int t, int64_t* references) const;

  bool training = true;
  std::vector<TableOfPlan> tables;
  // Set by the merge.
  int64_t unique_count = 0;                     // all distinct ids; before the round trip an upper bound
  std::vector<int64_t> occurrence_begin = {0};  // [tables + 1]: where each table's begin
  LookupWords words;
  ReusableArray<int32_t> inverse;    // [occurrences]
  ReusableArray<int32_t> positions;  // [unique]: the first occurrences
  ReusableArray<int64_t> keys;       // [unique]
  ReusableArray<int32_t> counts;     // [unique], if a table counts
  // Set by the read: rows, which become references once the lookup is done.
  ReusableArray<int64_t> rows;         // [unique], kAbsentRow for an id without a row
  std::vector<uint8_t> may_be_absent;  // by table: whether some id has no row, or does not read it
  // If has_read_rows: like `rows`, but kAbsentRow also for ids that are trained and yet read as their table's
  // default value in this lookup (Admission::before_lookup).
  ReusableArray<int64_t> read_rows;  // [unique]
  bool has_read_rows = false;
  const int64_t* rows_to_read() const { return has_read_rows ? read_rows.data() : rows.data(); }
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_MERGED_GROUP_H_
