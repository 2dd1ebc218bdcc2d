#include "cuda/engine/gpu_engine.h"

#include <atomic>
#include <utility>

#include "cc/base/status.h"
#include "cc/table/table_errors.h"
#include "cuda/engine/engine_memory.h"
#include "cuda/engine/gpu_table.h"
#include "cuda/group/gpu_call.h"
#include "cuda/group/group_lookup.h"
#include "cuda/group/group_merge.h"
#include "cuda/group/group_training.h"

namespace sok {
namespace {

// Sets the bytes of memory that the device has in all.
Status CheckDevice(const std::string& variable, int64_t* memory) {
  int devices = 0;
  cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices == 0) error = cudaErrorNoDevice;
  // A process that was forked after CUDA was used still knows the number of devices, but can use none.
  size_t free_bytes = 0, total_bytes = 0;
  if (error == cudaSuccess) error = cudaMemGetInfo(&free_bytes, &total_bytes);
  *memory = static_cast<int64_t>(total_bytes);
  if (error == cudaSuccess) return OkStatus();
  cudaGetLastError();
  return FailedPrecondition("Embedding variable '", variable,
                            "' needs a CUDA device: ", cudaGetErrorString(error));
}

// What is left when a slab does not fit is a small part of a small device's memory too.
int64_t SlabBytesFor(int64_t memory) {
  int64_t bytes = DeviceSlabs::kSlabBytes;
  while (bytes > memory / 64 && bytes > 64 * 1024) bytes /= 2;
  return bytes;
}

// Callers that take no steps have no scratch.
std::atomic<int64_t>* BlockOf(EngineScratch* scratch) {
  return scratch == nullptr ? nullptr : &static_cast<GpuScratch*>(scratch)->block_bytes;
}

}  // namespace

const std::string& GpuEngine::name() const {
  static const std::string name = "gpu";
  return name;
}

DeviceAllocator* GpuEngine::KeptMemoryOf(const EngineContext& context) {
  if (context.kept_memory == nullptr) return &memory_;
  const MutexLock lock(kept_mutex_);
  return &kept_
              .try_emplace(context.kept_memory, context.kept_memory,
                           static_cast<cudaStream_t>(context.stream))
              .first->second;
}

StatusOr<std::shared_ptr<EngineTable>> GpuEngine::MakeTable(const EngineContext& context,
                                                            TableOptions options) {
  SOK_RETURN_IF_ERROR(CheckOptions(options));
  if (options.tiers.has_disk() && options.tiers.host_bytes <= 0) {
    return NamedError(options,
                      InvalidArgument("DRAM_SSDHASH is for tables on a CPU, and this one is on a GPU; "
                                      "use HBM_DRAM_SSDHASH"));
  }
  int64_t device_bytes = 0;
  SOK_RETURN_IF_ERROR(CheckDevice(options.name, &device_bytes));
  DeviceAllocator* const kept = KeptMemoryOf(context);
  TableMemory memory{kept, kept, SlabBytesFor(device_bytes)};
  if (options.memory == RowMemory::kHost || options.tiers.has_tiers()) memory.rows = &host_memory_;
  SOK_ASSIGN_OR_RETURN(
      std::unique_ptr<DeviceTable> made,
      DeviceTable::Create(static_cast<cudaStream_t>(context.stream), memory, std::move(options)));
  return std::shared_ptr<EngineTable>(std::make_shared<GpuTable>(this, &memory_, std::move(made)));
}

std::unique_ptr<GroupPlan> GpuEngine::NewPlan() { return std::make_unique<GpuGroupPlan>(this); }
std::unique_ptr<EngineScratch> GpuEngine::NewScratch() { return std::make_unique<GpuScratch>(this); }
std::unique_ptr<HostStage> GpuEngine::NewHostStage() { return std::make_unique<GpuHostStage>(this); }

Status GpuEngine::Lookup(const EngineContext& context, const GroupBatch& batch, GroupPlan* plan,
                         Span<const OutputRows> outputs, EngineScratch* scratch) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_, BlockOf(scratch));
    return GpuGroupLookup(&call, KeptMemoryOf(context), DeviceTablesOf(batch.tables),
                          static_cast<GpuGroupPlan*>(plan), static_cast<GpuScratch*>(scratch))
        .Lookup(batch, outputs);
  });
}

Status GpuEngine::Merge(const EngineContext& context, const GroupBatch& batch, GroupPlan* plan,
                        EngineScratch* scratch) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_, BlockOf(scratch));
    return GpuGroupLookup(&call, KeptMemoryOf(context), DeviceTablesOf(batch.tables),
                          static_cast<GpuGroupPlan*>(plan), static_cast<GpuScratch*>(scratch))
        .Merge(batch);
  });
}

Status GpuEngine::Read(const EngineContext& context, Span<EngineTable* const> tables, GroupPlan* plan,
                       Span<const OutputRows> outputs, EngineScratch* scratch) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_, BlockOf(scratch));
    return GpuGroupLookup(&call, KeptMemoryOf(context), DeviceTablesOf(tables),
                          static_cast<GpuGroupPlan*>(plan), static_cast<GpuScratch*>(scratch))
        .Read(outputs);
  });
}

Status GpuEngine::Backward(const EngineContext& context, const GroupPlan& plan,
                           Span<const GradientRows> gradients, Span<float* const> grads_out,
                           EngineScratch* scratch) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_, BlockOf(scratch));
    return GroupBackward(&call, static_cast<const GpuGroupPlan&>(plan), gradients, grads_out);
  });
}

Status GpuEngine::WeightGradients(const EngineContext& context, Span<EngineTable* const> tables,
                                  const GroupPlan& plan, Span<const GradientRows> gradients,
                                  Span<float* const> weight_grads) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_);
    return GroupWeightGradients(&call, DeviceTablesOf(tables), static_cast<const GpuGroupPlan&>(plan),
                                gradients, weight_grads);
  });
}

Status GpuEngine::Train(const EngineContext& context, const GroupPlan& plan,
                        Span<const GradientRows> gradients, std::string_view optimizer,
                        Span<const EngineStep> steps, EngineScratch* scratch) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_, BlockOf(scratch));
    return GroupTrain(&call, static_cast<const GpuGroupPlan&>(plan), gradients, optimizer,
                      DeviceStepsOf(steps));
  });
}

}  // namespace sok
