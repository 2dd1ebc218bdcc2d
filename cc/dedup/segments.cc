#include "cc/dedup/segments.h"

namespace sok {

void BuildSegments(Span<const int32_t> inverse, int64_t num_unique, Segments* segments) {
  const int64_t n = inverse.size();
  std::vector<int64_t>& offsets = segments->offsets;
  offsets.assign(num_unique + 1, 0);
  segments->positions.resize(n);
  for (const int32_t u : inverse) ++offsets[u];
  // Each entry first holds its segment's end, and decreases to its begin as positions are placed from the
  // last one backwards.
  for (int64_t u = 1; u < num_unique; ++u) offsets[u] += offsets[u - 1];
  offsets[num_unique] = n;
  for (int64_t i = n - 1; i >= 0; --i) segments->positions[--offsets[inverse[i]]] = static_cast<int32_t>(i);
}

}  // namespace sok
