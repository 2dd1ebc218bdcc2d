#ifndef SOK_CUDA_ENGINE_HELD_GPU_TABLE_H_
#define SOK_CUDA_ENGINE_HELD_GPU_TABLE_H_

#include <cstdint>
#include <memory>

#include "cc/base/status.h"
#include "cc/engine/engine_context.h"
#include "cc/engine/held_table.h"
#include "cuda/base/device_allocator.h"
#include "cuda/table/device_table.h"

namespace sok {

// The number of rows that a pass over a table selects from at a time. Whatever the table's size, a pass takes
// about 9 bytes of device memory for each of them, and one piece of rows (rows_in_pieces.h).
constexpr int64_t kRowsOfWindow = int64_t{1} << 20;

// EngineTable::Hold: locks the table until the result is destroyed. Works on the context's stream, and waits
// for the device when it takes or returns something on the host, and once for each window of rows. `own` is
// the engine's memory. `window_rows` is a multiple of 32 below 2^31.
StatusOr<std::unique_ptr<HeldTable>> HoldTable(const EngineContext& context, DeviceAllocator* own,
                                               DeviceTable* table, int64_t window_rows = kRowsOfWindow);

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_HELD_GPU_TABLE_H_
