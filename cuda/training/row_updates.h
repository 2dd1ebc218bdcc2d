#ifndef SOK_CUDA_TRAINING_ROW_UPDATES_H_
#define SOK_CUDA_TRAINING_ROW_UPDATES_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/optimizers/adam.h"
#include "cc/optimizers/decay.h"
#include "cc/optimizers/rule.h"
#include "cuda/base/device_buffer.h"
#include "cuda/store/device_slabs.h"
#include "cuda/store/row_pieces.h"
#include "cuda/store/row_store_view.h"
#include "cuda/training/gradient_sums.h"

namespace sok {

// What update kernels need to know about a table's optimizer, in addition to a step of its rule: the steps
// that rows have missed. Pointers are to device memory.

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

// One table's step: its rows, and their gradients.
struct RowUpdate {
  RowStoreView table;
  // [count]: numbers of distinct rows, or references to them (cc/table/record_layout.h); negative ones are
  // skipped.
  const int64_t* rows = nullptr;
  int64_t count = 0;
  // The gradient of rows[k]: stored + k * dim, or if `stored` is null the sum of the table's distinct id
  // number k; count is then gradients.unique.
  const float* stored = nullptr;
  TableGradients gradients;
  const float* hyper = nullptr;  // the rule's hyper-parameters, on the host; checked
  int64_t step = 0;              // the number of the step, for stochastic rounding
  PastView past;
  // Whether the rows are known to have missed no step. Otherwise a rule that moves untouched rows needs
  // another kernel, which catches them up.
  bool rows_are_current = false;
};

// Enqueues one step of the rule `optimizer` for some tables, with the bits of Optimizer::Apply
// (cc/cpu/optimizers/optimizer.h) and, for sums of gradients, of EnqueueGradientSums. Sums that are not
// needed in memory go from registers into the rows. Does not add the step to the past steps: the caller does.
// Tables of a rule with a catch-up have records of floats.
//
// `group` belongs to the updates without stored gradients. Arguments on the host need not outlive the call.
// Thread-safe. InvalidArgument for an unknown rule; ResourceExhausted if `scratch` runs out of memory;
// Internal if a kernel cannot be launched.
Status EnqueueRowUpdates(cudaStream_t stream, DeviceAllocator* scratch, std::string_view optimizer,
                         const OccurrenceSegments& group, Span<const RowUpdate> updates);

// Rows of one table to catch up with the steps that they have missed.
struct RowCatchUp {
  RowStoreView table;
  RowList rows;  // distinct; may be references
  PastView past;
};

// Enqueues the catch-up of these rows, with the bits of Optimizer::CatchUp. Does nothing for rules without a
// catch-up. Errors are as above.
Status EnqueueRowCatchUps(cudaStream_t stream, std::string_view optimizer, Span<const RowCatchUp> catch_ups);

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_ROW_UPDATES_H_
