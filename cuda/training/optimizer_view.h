// What update kernels need to know about a table's optimizer, in addition to a step of its rule: the steps
// that rows have missed. Pointers are to device memory.
#ifndef SOK_CUDA_TRAINING_OPTIMIZER_VIEW_H_
#define SOK_CUDA_TRAINING_OPTIMIZER_VIEW_H_

#include <cstdint>

#include "cc/optimizers/adam.h"
#include "cc/optimizers/decay.h"
#include "cc/optimizers/rule.h"
#include "cuda/store/row_column.h"

namespace sok {

// When rows were last current, for rules that postpone what a step does to rows without a gradient.
struct RowStepsView {
  ColumnView<uint32_t> last_current;
  uint32_t now = 0;
};

// The decay of slots, for a UntouchedRows::kSlotsDecay rule.
struct DecayView {
  RowStepsView row_steps;
  float factors[kMaxSlots] = {};  // of a step
  Powers powers[kMaxSlots];       // of the factors
};

// The past of exact Adam, the UntouchedRows::kMove rule. `epsilon` is that of all its steps.
struct AdamPastView {
  RowStepsView row_steps;
  AdamHistoryView history;
  float epsilon = 0.0f;
};

// The past of an optimizer with any rule; members that the rule does not need are not set.
struct PastView {
  DecayView decay;
  AdamPastView adam;
};

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_OPTIMIZER_VIEW_H_
