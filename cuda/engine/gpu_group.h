// A group of lookups on the device, in one step: what the engine's calls hand on.
#ifndef SOK_CUDA_ENGINE_GPU_GROUP_H_
#define SOK_CUDA_ENGINE_GPU_GROUP_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cc/engine/engine.h"
#include "cuda/bags/group_bags.h"
#include "cuda/base/round_trip.h"
#include "cuda/base/staged_upload.h"
#include "cuda/engine/reusable_array.h"
#include "cuda/table/device_table.h"
#include "cuda/table/ids_of_group.h"

namespace sok {

// Tables of a group in a plan: enough to know them again, and whether rows have gone since.
struct TableOfPlan {
  uint64_t serial = 0;
  int64_t num_erased = 0;
  int64_t dim = 0;
  // The distinct ids of the table are [first, first + unique) of the group's, of which the first `trained`
  // get gradients.
  int64_t first = 0;
  int64_t unique = 0;
  int64_t trained = 0;
};

// The words that a lookup fetches in its round trip, on the device: the report of the bags, then where each
// table's distinct ids begin; then where those without a row begin, and the first id that has no row in a
// table without hashing; then, if a table has admission, where those begin that it admits, that wait no
// longer, and that wait from now on.
class LookupWords {
 public:
  LookupWords() = default;
  LookupWords(int64_t* words, int64_t report, int tables) : words_(words), report_(report), tables_(tables) {}

  int64_t merge_size() const { return report_ + begins(); }
  int64_t find_size(bool has_filters) const { return begins() + 1 + (has_filters ? 3 * begins() : 0); }
  int64_t size(bool has_filters) const { return merge_size() + find_size(has_filters); }

  int64_t* report() const { return words_; }
  int64_t* unique_begin() const { return words_ + report_; }  // [tables + 1], as all that follow
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

class GpuGroupPlan final : public GroupPlan {
 public:
  using GroupPlan::GroupPlan;
  int64_t trained_rows(int t) const override { return tables[static_cast<size_t>(t)].trained; }
  Status WriteReferences(const EngineContext& context, int t, int64_t* references) const override;

  // The group's distinct ids.
  IdsOfGroup ids() const;
  int num_tables() const { return static_cast<int>(tables.size()); }

  bool training = true;
  std::vector<TableOfPlan> tables;
  GroupBags bags;
  // From the merge on.
  int64_t unique_count = 0;  // all distinct ids; before the round trip what they are at most
  int64_t occurrences = 0;
  ReusableArray<int64_t> word_memory;
  LookupWords words;
  ReusableArray<int32_t> inverse;    // [occurrences]
  ReusableArray<int32_t> positions;  // [unique]: of the first occurrences
  ReusableArray<int64_t> keys;       // [unique]
  ReusableArray<int32_t> counts;     // [unique], if a table counts
  // From the read on: rows, and references to them once the lookup is done.
  ReusableArray<int64_t> rows;         // [unique], kAbsentRow where an id has none
  std::vector<uint8_t> may_be_absent;  // by table: whether some id has none
  std::vector<uint8_t> sort;  // by lookup: whether its ids are sorted by bag, as they had to be before
};

class GpuScratch final : public EngineScratch {
 public:
  using EngineScratch::EngineScratch;
  StagedUpload upload;
  RoundTrip round_trip;
  // Numbers of ids, as LookupWords lists them.
  ReusableArray<int32_t> absent;
  ReusableArray<int32_t> admitted;
  ReusableArray<int32_t> gone;
  ReusableArray<int32_t> fresh;
  // Of each id, what admission has decided.
  ReusableArray<int64_t> totals;
  ReusableArray<int64_t> places;
  ReusableArray<int32_t> outcomes;
  // Of each id, as the plan is reordered.
  ReusableArray<int64_t> reordered_keys;
  ReusableArray<int64_t> reordered_rows;
  ReusableArray<int32_t> moved;
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_GPU_GROUP_H_
