// The distinct ids of a group of lookups.
#ifndef SOK_CUDA_GROUP_GROUP_MERGE_H_
#define SOK_CUDA_GROUP_GROUP_MERGE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/bags/group_bags.h"
#include "cuda/base/device_buffer.h"
#include "cuda/group/gpu_call.h"
#include "cuda/pooling/lookup_view.h"
#include "cuda/table/device_table.h"
#include "cuda/table/key_directory.h"

namespace sok {

// The distinct ids of a group of tables in one step, and their rows.

// A table of a merged group: enough to recognize the table, and to see whether rows were erased since.
struct TableOfPlan {
  uint64_t serial = 0;
  int64_t num_erased = 0;
  // DeviceOptimizer::version() when the rows were brought up to date; negative without an optimizer.
  int64_t current_at = -1;
  // TierDisk::version() when all rows were in memory.
  int64_t disk_version = 0;
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
  IdsOfGroup ids() const {
    if (!is_merged) return {num_tables(), read_begin, read_keys, unique_count};
    return {num_tables(), words.unique_begin(), keys.data(), unique_count};
  }
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
  // A lookup that only reads does not merge its ids: each occurrence is a distinct id then, with its number.
  // These are the begins and keys of its ids, and the next four arrays are not set.
  bool is_merged = true;
  const int64_t* read_begin = nullptr;  // [tables + 1]
  const int64_t* read_keys = nullptr;   // [unique]
  ReusableArray<int32_t> inverse;       // [occurrences]
  ReusableArray<int32_t> positions;     // [unique]: the first occurrences
  ReusableArray<int64_t> keys;          // [unique]
  ReusableArray<int32_t> counts;        // [unique], if a table counts
  // Set by the read: rows, which become references once the lookup is done.
  ReusableArray<int64_t> rows;         // [unique], kAbsentRow for an id without a row
  std::vector<uint8_t> may_be_absent;  // by table: whether some id has no row, or does not read it
  // If has_read_rows: like `rows`, but kAbsentRow also for ids that are trained and yet read as their table's
  // default value in this lookup (Admission::before_lookup).
  ReusableArray<int64_t> read_rows;  // [unique]
  bool has_read_rows = false;
  const int64_t* rows_to_read() const { return has_read_rows ? read_rows.data() : rows.data(); }
};

// The lookups of a group on the asking rank, and their distinct ids.
struct MergedBags : MergedGroup {
  GroupBags bags;
  ReusableArray<int64_t> word_memory;
  std::vector<uint8_t> sort;  // by lookup: whether to sort its ids by bag, as they were out of order
};

// Merges the ids of a batch. `memory` is the engine's, for what the group keeps. Uses only the tables' names.
class GroupMerge {
 public:
  GroupMerge(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables, const GroupBatch& batch,
             MergedBags* group, GpuScratch* scratch);

  // Makes room for `more_words` words after group->words.merge_size(), and enqueues the work that makes bags,
  // distinct ids and, if `counts`, group->counts. is_merged[tables], on the device, says which tables' ids
  // are merged; null: all. The caller then fetches the words from group->words.report() on.
  Status Enqueue(int64_t more_words, bool counts, const uint8_t* is_merged = nullptr);
  // The same without distinct ids, for a lookup that only reads: to find a row for each occurrence is faster
  // than to find out which ids are equal.
  Status EnqueueUnmerged(int64_t more_words);
  // Takes merge_size() of these words. Returns whether ids have to be sorted first: then enqueue again.
  // Errors as for GroupBags::TakeReport.
  StatusOr<bool> Take(const int64_t* words);

 private:
  BagsInput Input() const;
  // Makes room, and enqueues the work that makes bags.
  Status EnqueueBags(int64_t more_words);

  GpuCall& call_;
  DeviceAllocator* memory_;
  std::vector<std::string> names_;
  const GroupBatch& batch_;
  MergedBags& group_;
  GpuScratch& scratch_;
};

// A group of lookups on the device, in one step: the state that one call of the engine leaves for the next.

class GpuGroupPlan final : public GroupPlan, public MergedBags {
 public:
  using GroupPlan::GroupPlan;
  int64_t trained_rows(int t) const override { return tables[static_cast<size_t>(t)].trained; }
  Status WriteReferences(const EngineContext& context, int t, int64_t* references) const override {
    return CopyReferences(static_cast<cudaStream_t>(context.stream), t, references);
  }
};

// A group's lookups as the kernels of cuda/pooling see them.

// The occurrences of the ids of the group's table number `t`, which is `table`. keys[occurrences] are on the
// device.
OccurrenceRows OccurrenceRowsOf(const MergedGroup& group, int t, const DeviceTable& table,
                                const int64_t* keys);
// Lookup `l`.
BagsView BagsViewOf(const GroupBags& bags, size_t l);

}  // namespace sok

#endif  // SOK_CUDA_GROUP_GROUP_MERGE_H_
