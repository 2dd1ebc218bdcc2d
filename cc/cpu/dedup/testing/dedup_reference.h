// Slow, obvious dedup and segments: the reference for tests and benchmarks.
#ifndef SOK_CC_CPU_DEDUP_TESTING_DEDUP_REFERENCE_H_
#define SOK_CC_CPU_DEDUP_TESTING_DEDUP_REFERENCE_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cc/base/span.h"
#include "cc/cpu/dedup/dedup.h"

namespace sok {

struct ReferenceUnique {
  std::vector<int64_t> unique;
  std::vector<int32_t> inverse;
};

inline ReferenceUnique ReferenceDedup(Span<const int64_t> ids) {
  ReferenceUnique result;
  std::unordered_map<int64_t, int32_t> seen;
  for (const int64_t id : ids) {
    const auto [at, is_new] = seen.emplace(id, static_cast<int32_t>(seen.size()));
    if (is_new) result.unique.push_back(id);
    result.inverse.push_back(at->second);
  }
  return result;
}

inline Segments ReferenceSegments(Span<const int32_t> inverse, int64_t num_unique) {
  std::vector<std::vector<int32_t>> occurrences(num_unique);
  for (int64_t i = 0; i < inverse.size(); ++i) occurrences[inverse[i]].push_back(static_cast<int32_t>(i));
  Segments result;
  result.offsets.push_back(0);
  for (const std::vector<int32_t>& one : occurrences) {
    result.positions.insert(result.positions.end(), one.begin(), one.end());
    result.offsets.push_back(static_cast<int64_t>(result.positions.size()));
  }
  return result;
}

}  // namespace sok

#endif  // SOK_CC_CPU_DEDUP_TESTING_DEDUP_REFERENCE_H_
