#ifndef SOK_CC_OPTIMIZERS_OPTIMIZER_STATE_H_
#define SOK_CC_OPTIMIZERS_OPTIMIZER_STATE_H_

#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_OPTIMIZER_STATE_H_
