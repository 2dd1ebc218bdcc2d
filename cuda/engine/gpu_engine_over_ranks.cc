#include <atomic>

#include "cc/base/status.h"
#include "cuda/engine/gpu_engine.h"
#include "cuda/engine/gpu_table.h"
#include "cuda/group/gpu_call.h"
#include "cuda/sharded/message_kernels.h"
#include "cuda/sharded/serve_rows.h"
#include "cuda/sharded/sharded_group.h"

namespace sok {
namespace {

std::atomic<int64_t>* BlockOf(const RoutedGroup& routed, std::atomic<int64_t> HostTransfers::* bytes) {
  return &(static_cast<const GpuRoutedGroup&>(routed).transfers.get()->*bytes);
}

}  // namespace

std::unique_ptr<RoutedGroup> GpuEngine::NewRoutedGroup() { return std::make_unique<GpuRoutedGroup>(this); }
std::unique_ptr<ServedGroup> GpuEngine::NewServedGroup() { return std::make_unique<GpuServedGroup>(this); }

Status GpuEngine::Route(const EngineContext& context, const GroupBatch& batch, Span<const ExchangeMode> modes,
                        const Status& status, RoutedGroup* routed, EngineScratch* scratch,
                        AllocateWords allocate) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_, &static_cast<GpuScratch*>(scratch)->block_bytes);
    return RouteLookups(&call, KeptMemoryOf(context), DeviceTablesOf(batch.tables),
                        static_cast<GpuRoutedGroup*>(routed), static_cast<GpuScratch*>(scratch))
        .Route(batch, modes, status, allocate);
  });
}

Status GpuEngine::Serve(const EngineContext& context, Span<EngineTable* const> tables,
                        Span<const ExchangeMode> modes, const Inbox& requests, ServedGroup* served,
                        EngineScratch* scratch, AllocateWords allocate) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_, &static_cast<GpuScratch*>(scratch)->block_bytes);
    return ServeRows(&call, KeptMemoryOf(context), DeviceTablesOf(tables), modes,
                     static_cast<GpuServedGroup*>(served), static_cast<GpuScratch*>(scratch))
        .Serve(requests, allocate);
  });
}

Status GpuEngine::Combine(const EngineContext& context, Span<EngineTable* const> tables,
                          const RoutedGroup& routed, const Inbox& replies, Span<const OutputRows> outputs) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_, BlockOf(routed, &HostTransfers::combine_bytes));
    return CombineRows(&call, DeviceTablesOf(tables), static_cast<const GpuRoutedGroup&>(routed), replies,
                       outputs);
  });
}

Status GpuEngine::Reduce(const EngineContext& context, const RoutedGroup& routed,
                         Span<const GradientRows> gradients, const Inbox& replies, GradientFormat format,
                         AllocateWords allocate) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_, BlockOf(routed, &HostTransfers::reduce_bytes));
    return ReduceGradients(&call, static_cast<const GpuRoutedGroup&>(routed), gradients, replies, format,
                           allocate);
  });
}

Status GpuEngine::RoutedWeightGradients(const EngineContext& context, const RoutedGroup& routed,
                                        const Inbox& replies, Span<const GradientRows> gradients,
                                        Span<float* const> weight_grads) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_);
    return WeightGradientsOfReceived(&call, static_cast<const GpuRoutedGroup&>(routed), replies, gradients,
                                     weight_grads);
  });
}

Status GpuEngine::Sum(const EngineContext& context, const ServedGroup& served, const Inbox& messages,
                      Span<float* const> grads_out, EngineScratch* scratch) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_, &static_cast<GpuScratch*>(scratch)->block_bytes);
    return SumArrived(&call, static_cast<const GpuServedGroup&>(served), messages, grads_out,
                      static_cast<GpuScratch*>(scratch));
  });
}

Status GpuEngine::SumAndTrain(const EngineContext& context, const ServedGroup& served, const Inbox& messages,
                              float divisor, std::string_view optimizer, Span<const EngineStep> steps,
                              EngineScratch* scratch) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_, &static_cast<GpuScratch*>(scratch)->block_bytes);
    return TrainArrived(&call, static_cast<const GpuServedGroup&>(served), messages, divisor, optimizer,
                        DeviceStepsOf(steps), static_cast<GpuScratch*>(scratch));
  });
}

Status GpuEngine::Divide(const EngineContext& context, const float* values, int64_t n, float divisor,
                         float* quotients) {
  return EnqueueDivision(static_cast<cudaStream_t>(context.stream), values, n, divisor, quotients);
}

}  // namespace sok
