#ifndef SOK_CUDA_TRAINING_ROW_UPDATES_H_
#define SOK_CUDA_TRAINING_ROW_UPDATES_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/store/row_pieces.h"
#include "cuda/store/row_store_view.h"
#include "cuda/training/gradient_sums.h"
#include "cuda/training/optimizer_view.h"

namespace sok {

// One table's step: its rows, and their gradients.
struct RowUpdate {
  RowStoreView table;
  // [count]: numbers of distinct rows, or references to them (cc/table/row_reference.h); negative ones are
  // skipped.
  const int64_t* rows = nullptr;
  int64_t count = 0;
  // The gradient of rows[k]: stored + k * dim, or if `stored` is null the sum of the table's distinct id
  // number k; count is then gradients.unique.
  const float* stored = nullptr;
  TableGradients gradients;
  const float* hyper = nullptr;  // the rule's hyper-parameters, on the host; checked
  PastView past;
  // Whether the rows are known to have missed no step. Otherwise a rule that moves untouched rows needs
  // another kernel, which catches them up.
  bool rows_are_current = false;
};

// Enqueues one step of the rule `optimizer` for some tables, with the bits of Optimizer::Apply
// (cc/optimizers/optimizer.h) and, for sums of gradients, of EnqueueGradientSums. Sums that are not needed in
// memory go from registers into the rows. Does not add the step to the past steps: the caller does.
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
