#ifndef SOK_CUDA_TABLE_BRING_UP_TO_DATE_H_
#define SOK_CUDA_TABLE_BRING_UP_TO_DATE_H_

#include <cuda_runtime.h>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/store/row_pieces.h"
#include "cuda/table/device_table.h"

namespace sok {

// DeviceTable::BringUpToDate for several tables: rows[i] belong to tables[i]. Tables with the same optimizer
// share a launch. Returns the same errors.
Status BringUpToDate(cudaStream_t stream, Span<DeviceTable* const> tables, Span<const RowList> rows);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_BRING_UP_TO_DATE_H_
