// A group of lookups on the device, in one step: the state that one call of the engine leaves for the next.
#ifndef SOK_CUDA_ENGINE_GPU_GROUP_H_
#define SOK_CUDA_ENGINE_GPU_GROUP_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/engine/engine.h"
#include "cuda/engine/group_merge.h"

namespace sok {

class GpuGroupPlan final : public GroupPlan, public MergedBags {
 public:
  using GroupPlan::GroupPlan;
  int64_t trained_rows(int t) const override { return tables[static_cast<size_t>(t)].trained; }
  Status WriteReferences(const EngineContext& context, int t, int64_t* references) const override {
    return CopyReferences(static_cast<cudaStream_t>(context.stream), t, references);
  }
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_GPU_GROUP_H_
