#ifndef SOK_CC_CPU_GROUP_LOOKUP_PLAN_H_
#define SOK_CC_CPU_GROUP_LOOKUP_PLAN_H_

#include <cstdint>
#include <vector>

#include "cc/lookup/lookup_input.h"

namespace sok {

// One lookup of a group: ids of one feature, looked up in one table.
struct LookupBags {
  int table = 0;        // position in the group's tables
  bool pooled = false;  // false: one output row per id
  Combiner combiner = Combiner::kSum;
  std::vector<int64_t> offsets;  // pooled: bag b holds ids [offsets[b], offsets[b + 1])
  std::vector<float> weights;    // empty, or one per id; finite
  // The caller's position of each id if the caller's ids were not ordered by bag, or some are in no bag; else
  // empty.
  std::vector<int64_t> order;
  int64_t first = 0;  // the lookup's ids are [first, first + count) of its table's
  int64_t count = 0;
  int64_t given = 0;  // the number of the caller's ids: more than `count` if some are in no bag

  int64_t num_bags() const { return pooled ? static_cast<int64_t>(offsets.size()) - 1 : count; }
};

// The ids that a group looks up in one table. Empty if they were read without merging duplicates.
struct TablePart {
  // Distinct ids in order of first occurrence. If admission leaves some without rows in training, those with
  // rows come first.
  std::vector<int64_t> unique;
  std::vector<int32_t> inverse;  // for each id of the table its position in `unique`
  // For each distinct id a reference to its row (see row_reference.h), Table::kAbsent if it has none.
  std::vector<int64_t> rows;
  // Like `rows`, but kAbsent also for ids that are trained and yet read as the table's default value in this
  // lookup (Admission::before_lookup). Empty if there are none.
  std::vector<int64_t> read_rows;
  // How many of the first distinct ids are trained, and have gradients. 0 without training.
  int64_t trained = 0;

  // What the distinct ids read.
  const std::vector<int64_t>& rows_to_read() const { return read_rows.empty() ? rows : read_rows; }

  void Clear() {
    unique.clear();
    inverse.clear();
    rows.clear();
    read_rows.clear();
    trained = 0;
  }
};

// A group of lookups in one step. The backward pass reuses what the forward pass found (distinct ids and
// their rows), so that no id is looked up twice in a step.
struct LookupPlan {
  bool training = true;  // false: unseen ids are not inserted, and the group has no gradients
  std::vector<LookupBags> lookups;
  std::vector<TablePart> parts;  // one per table of the group
};

}  // namespace sok

#endif  // SOK_CC_CPU_GROUP_LOOKUP_PLAN_H_
