// Views of a lookup's output and of its gradient.
#ifndef SOK_CC_GROUP_OUTPUT_ROWS_H_
#define SOK_CC_GROUP_OUTPUT_ROWS_H_

#include <cstdint>

namespace sok {

// Where the output of a lookup goes: row b (a bag, or an id if the lookup is not pooled) at data + b *
// stride.
struct OutputRows {
  float* data = nullptr;
  int64_t stride = 0;  // floats, at least the table's dim
};

// The gradient of a lookup's output, laid out as the output.
struct GradientRows {
  const float* data = nullptr;
  int64_t stride = 0;
};

}  // namespace sok

#endif  // SOK_CC_GROUP_OUTPUT_ROWS_H_
