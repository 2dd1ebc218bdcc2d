// A plan's lookups as the kernels of cuda/pooling see them.
#ifndef SOK_CUDA_ENGINE_PLAN_VIEWS_H_
#define SOK_CUDA_ENGINE_PLAN_VIEWS_H_

#include <cstddef>

#include "cuda/engine/gpu_group.h"
#include "cuda/pooling/lookup_view.h"
#include "cuda/table/device_table.h"

namespace sok {

// `table` is that of lookup `l`.
OccurrenceRows OccurrenceRowsOf(const GpuGroupPlan& plan, size_t l, const DeviceTable& table);
BagsView BagsViewOf(const GpuGroupPlan& plan, size_t l);

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_PLAN_VIEWS_H_
