#ifndef SOK_CC_DEDUP_SEGMENTS_H_
#define SOK_CC_DEDUP_SEGMENTS_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"

namespace sok {

// The occurrences of each distinct id of a batch: those of distinct id u are
// positions[offsets[u] .. offsets[u + 1]), in increasing order. offsets has one entry more than there are
// distinct ids.
struct Segments {
  std::vector<int64_t> offsets;
  std::vector<int32_t> positions;
};

// Inverts Deduplicator's `inverse`, which has at most 2^31 - 1 values in [0, num_unique). Linear time; reuses
// the memory of `segments`. Stable: equal ids keep their order.
void BuildSegments(Span<const int32_t> inverse, int64_t num_unique, Segments* segments);

}  // namespace sok

#endif  // SOK_CC_DEDUP_SEGMENTS_H_
