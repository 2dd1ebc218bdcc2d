// What the kernels of updates need to know of a table's optimizer beside a step of its rule: the steps that
// rows have missed. Pointers are to memory of the device.
#ifndef SOK_CUDA_TRAINING_OPTIMIZER_VIEW_H_
#define SOK_CUDA_TRAINING_OPTIMIZER_VIEW_H_

#include <cstdint>

#include "cc/optimizers/adam_walk.h"
#include "cc/optimizers/decay.h"
#include "cc/optimizers/rule.h"
#include "cuda/store/row_column.h"

namespace sok {

// When rows were last current, of rules that postpone what a step does to rows without a gradient.
struct RowStepsView {
  ColumnView<uint32_t> last_current;
  uint32_t now = 0;
};

// The decay of the slots of a UntouchedRows::kSlotsDecay rule.
struct DecayView {
  RowStepsView row_steps;
  float factors[kMaxSlots] = {};  // of a step
  Powers powers[kMaxSlots];       // of the factors
};

// The past of the exact Adam, UntouchedRows::kMove. `epsilon` is that of all its steps.
struct AdamPastView {
  RowStepsView row_steps;
  AdamHistoryView history;
  float epsilon = 0.0f;
};

// Of an optimizer of any rule; what its rule does not need is not set.
struct PastView {
  DecayView decay;
  AdamPastView adam;
};

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_OPTIMIZER_VIEW_H_
