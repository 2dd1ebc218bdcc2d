// A group's lookups as the kernels of cuda/pooling see them.
#ifndef SOK_CUDA_ENGINE_PLAN_VIEWS_H_
#define SOK_CUDA_ENGINE_PLAN_VIEWS_H_

#include <cstddef>
#include <cstdint>

#include "cuda/bags/group_bags.h"
#include "cuda/engine/merged_group.h"
#include "cuda/pooling/lookup_view.h"
#include "cuda/table/device_table.h"

namespace sok {

// The occurrences of the ids of the group's table number `t`, which is `table`. keys[occurrences] are on the
// device.
OccurrenceRows OccurrenceRowsOf(const MergedGroup& group, int t, const DeviceTable& table,
                                const int64_t* keys);
// Lookup `l`.
BagsView BagsViewOf(const GroupBags& bags, size_t l);

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_PLAN_VIEWS_H_
