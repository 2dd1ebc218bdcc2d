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
  // [count]: numbers of distinct rows, or references to them (cc/table/row_reference.h); below 0 for none.
  const int64_t* rows = nullptr;
  int64_t count = 0;
  // The gradient of rows[k]: stored + k * dim, or where `stored` is null the sum of the table's distinct id
  // number k, so that count is gradients.unique.
  const float* stored = nullptr;
  TableGradients gradients;
  const float* hyper = nullptr;  // the rule's hyper-parameters, on the host; checked
  PastView past;
};

// Puts one step of the rule `optimizer` for some tables into the stream: the bits of Optimizer::Apply
// (cc/optimizers/optimizer.h), sums of gradients as EnqueueGradientSums. Sums that need not lie in memory go
// from registers into the rows. Past steps stay what they are: the caller appends this one.
//
// `group` is that of the updates without stored gradients. Arguments on the host need not outlive the call.
// Thread-safe. InvalidArgument for an unknown rule; ResourceExhausted where `scratch` has no memory; Internal
// where a kernel cannot be launched.
Status EnqueueRowUpdates(cudaStream_t stream, DeviceAllocator* scratch, std::string_view optimizer,
                         const OccurrenceSegments& group, Span<const RowUpdate> updates);

// Rows that are to catch up with the steps that they have missed. Of one table.
struct RowCatchUp {
  RowStoreView table;
  RowList rows;  // distinct; references as well
  PastView past;
};

// Puts catching up into the stream: the bits of Optimizer::CatchUp. Nothing for rules without a catch-up.
// Errors as above.
Status EnqueueRowCatchUps(cudaStream_t stream, std::string_view optimizer, Span<const RowCatchUp> catch_ups);

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_ROW_UPDATES_H_
