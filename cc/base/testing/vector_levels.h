#ifndef SOK_CC_BASE_TESTING_VECTOR_LEVELS_H_
#define SOK_CC_BASE_TESTING_VECTOR_LEVELS_H_

#include <vector>

#include "cc/base/vectorize.h"

namespace sok {

// The vector levels of this processor, narrowest first. Under ThreadSanitizer only the widest: at each level
// threads share the same.
inline std::vector<VectorLevel> VectorLevels() {
#ifdef __SANITIZE_THREAD__
  return {SupportedVectorLevel()};
#else
  std::vector<VectorLevel> levels;
  for (const VectorLevel level : {VectorLevel::kPlain, VectorLevel::kAvx2, VectorLevel::kAvx512}) {
    if (level <= SupportedVectorLevel()) levels.push_back(level);
  }
  return levels;
#endif
}

// RunVectorized uses `level` while this object lives.
class WithVectorLevel {
 public:
  explicit WithVectorLevel(VectorLevel level) : before_(vector_level.exchange(level)) {}
  ~WithVectorLevel() { vector_level = before_; }
  WithVectorLevel(const WithVectorLevel&) = delete;
  WithVectorLevel& operator=(const WithVectorLevel&) = delete;

 private:
  const VectorLevel before_;
};

}  // namespace sok

#endif  // SOK_CC_BASE_TESTING_VECTOR_LEVELS_H_
