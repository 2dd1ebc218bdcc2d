// Bags as 32-bit row splits, for lookups that travel from the host to a device: 4 bytes a bag, where a
// SparseTensor has 16 an id.
#ifndef SOK_CC_LOOKUP_NARROW_SPLITS_H_
#define SOK_CC_LOOKUP_NARROW_SPLITS_H_

#include <algorithm>
#include <cstdint>
#include <limits>

namespace sok {

// Both functions on indices, [num_ids, 2] with the bag in the first column, take the ids [begin, end), so
// that threads can share a lookup.

// Whether the bags of the ids are in [0, num_bags), and none is before that of the id before it.
inline bool AreInOrder(const int64_t* indices, int64_t begin, int64_t end, int64_t num_bags) {
  int64_t before = begin == 0 ? 0 : indices[2 * (begin - 1)];
  bool in_order = true;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t bag = indices[2 * i];
    in_order = in_order && before <= bag && bag < num_bags;
    before = bag;
  }
  return in_order;
}

// Writes the splits of the bags that begin at one of these ids, of num_ids > 0 ids that are in order: those
// after the bag of the id before, up to the id's own. The last id also has those of all later bags. So all
// ranges together write splits[num_bags + 1].
inline void WriteNarrowSplits(const int64_t* indices, int64_t begin, int64_t end, int64_t num_ids,
                              int64_t num_bags, int32_t* splits) {
  int64_t next = begin == 0 ? 0 : indices[2 * (begin - 1)] + 1;
  for (int64_t i = begin; i < end; ++i) {
    for (const int64_t bag = indices[2 * i]; next <= bag; ++next) splits[next] = static_cast<int32_t>(i);
  }
  if (end == num_ids) std::fill(splits + next, splits + num_bags + 1, static_cast<int32_t>(num_ids));
}

// Whether 32 bits hold these row splits.
inline bool AreNarrow(const int64_t* splits, int64_t begin, int64_t end) {
  return std::all_of(splits + begin, splits + end, [](int64_t split) {
    return 0 <= split && split <= std::numeric_limits<int32_t>::max();
  });
}

}  // namespace sok

#endif  // SOK_CC_LOOKUP_NARROW_SPLITS_H_
