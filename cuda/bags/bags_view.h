// A group's lookups as the kernels of this folder see them. All pointers are to memory of the device.
#ifndef SOK_CUDA_BAGS_BAGS_VIEW_H_
#define SOK_CUDA_BAGS_BAGS_VIEW_H_

#include <cstdint>

#include "cc/group/lookup_input.h"
#include "cuda/bags/bags_report.h"

namespace sok {

// One lookup. Its ids come in the order of its bags.
struct InputView {
  LookupInput input;
  IdLayout layout = IdLayout::kDense;
  bool weighted = false;
  bool drops_ids = false;        // those whose weight is not above zero
  bool has_order = false;        // `order` of GroupView is wanted
  bool may_be_one_each = false;  // as many ids as bags, and kNotOneEach is wanted
  int number = 0;                // of the lookup in the group as it was given
  // [num_ids]: the given position of each id. Null where it is the id's own number.
  const int32_t* order = nullptr;
  int64_t first_id = 0;          // the ids of the lookups before it
  int64_t first_bag = 0;         // their bag_begin entries
  int32_t* bag_begin = nullptr;  // [num_bags + 1]; null where nothing is pooled
};

// All of them: those of table 0 first, then those of table 1, and so on. Their ids, whether they stay in
// their bags or not, are numbered in this order; so are the occurrences, those of them that stay.
struct GroupView {
  int num_lookups = 0;
  const InputView* lookups = nullptr;  // [num_lookups]
  const int64_t* first_id = nullptr;   // [num_lookups + 1]
  const int64_t* table_id = nullptr;   // [num_tables + 1]: the ids of the tables before
  // Blocks that read ids, and blocks that read row splits: [num_lookups + 1] each, the blocks of the lookups
  // before.
  const int64_t* id_tiles = nullptr;
  const int64_t* split_tiles = nullptr;
  // [num_lookups + 1]: the ids of the lookups before that are to be sorted by bag.
  const int64_t* first_sorted = nullptr;

  // Of each occurrence. Null where not wanted.
  int64_t* keys = nullptr;
  float* weights = nullptr;
  int32_t* order = nullptr;
  BagsReport report;
};

// Ids or row splits that a block reads.
constexpr int kBagTile = 1024;

}  // namespace sok

#endif  // SOK_CUDA_BAGS_BAGS_VIEW_H_
