#ifndef SOK_CC_BASE_TESTING_VECTOR_LEVELS_H_
#define SOK_CC_BASE_TESTING_VECTOR_LEVELS_H_

#include <vector>

#include "cc/base/vectorize.h"

namespace sok {

// The vector levels of this processor, narrowest first.
inline std::vector<VectorLevel> VectorLevels() {
  std::vector<VectorLevel> levels;
  for (const VectorLevel level : {VectorLevel::kPlain, VectorLevel::kAvx2, VectorLevel::kAvx512}) {
    if (level <= SupportedVectorLevel()) levels.push_back(level);
  }
  return levels;
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
