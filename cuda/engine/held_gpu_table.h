#ifndef SOK_CUDA_ENGINE_HELD_GPU_TABLE_H_
#define SOK_CUDA_ENGINE_HELD_GPU_TABLE_H_

#include <memory>

#include "cc/base/status.h"
#include "cc/engine/engine_context.h"
#include "cc/engine/held_table.h"
#include "cuda/base/device_allocator.h"
#include "cuda/table/device_table.h"

namespace sok {

// EngineTable::Hold: locks the table until the result goes. Its work is on the context's stream, and it waits
// for the device where a caller gets something on the host. `own` is the engine's memory.
StatusOr<std::unique_ptr<HeldTable>> HoldTable(const EngineContext& context, DeviceAllocator* own,
                                               DeviceTable* table);

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_HELD_GPU_TABLE_H_
