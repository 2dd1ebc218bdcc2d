#ifndef SOK_CC_OPTIMIZERS_OPTIMIZER_STATE_H_
#define SOK_CC_OPTIMIZERS_OPTIMIZER_STATE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"

namespace sok {

// The table-wide state of an optimizer in a checkpoint.
struct OptimizerState {
  std::string name;
  int64_t steps = 0;
};

// The state in bytes, little-endian: "SOKO", uint32 format version (1), uint64 steps, uint32 length of the
// name, the name, and the uint64 FNV-1a checksum of everything before it.
std::string EncodeOptimizerState(const OptimizerState& state);

// The inverse. DataLoss for bytes that are cut short, too long, or in another format or version, and for a
// wrong checksum.
StatusOr<OptimizerState> DecodeOptimizerState(std::string_view bytes);

// The steps that rows may have missed. A checkpoint with such rows keeps them, so that the rows can catch up
// after a restore.
struct PastSteps {
  float beta1 = 0.0f;
  float beta2 = 0.0f;
  float epsilon = 0.0f;
  int64_t first_step = 0;     // the optimizer's steps() before the first of these steps
  std::vector<float> alphas;  // the bias-corrected learning rate of each step
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_OPTIMIZER_STATE_H_
