#include "cuda/engine/gpu_table.h"

#include "cc/base/mutex.h"
#include "cc/base/within_memory.h"
#include "cuda/engine/assign_rows.h"
#include "cuda/engine/gpu_call.h"
#include "cuda/engine/group_training.h"
#include "cuda/engine/held_gpu_table.h"
#include "cuda/engine/tables_at_work.h"

namespace sok {
namespace {

// Calls work(call, table) with the table locked, ordered after earlier work on it.
template <typename Work>
Status WithTable(const EngineContext& context, DeviceAllocator* own, DeviceTable* table, const Work& work) {
  return WithinMemory([&] {
    GpuCall call(context, own);
    TablesAtWork at_work(call.stream(), Span<DeviceTable* const>(&table, 1));
    SOK_RETURN_IF_ERROR(at_work.Enter());
    return work(call);
  });
}

}  // namespace

TableDescription GpuTable::Describe() const {
  const MutexLock lock(table_->mutex());
  return {table_->size(), table_->bytes(), table_->steps(),
          table_->optimizer() == nullptr ? "" : table_->optimizer()->name()};
}

Status GpuTable::ApplyGradients(const EngineContext& context, std::string_view optimizer,
                                Span<const float> hyper, Span<const int64_t> references, const float* grads,
                                bool distinct) {
  return WithTable(context, own_, table_.get(), [&](GpuCall& call) {
    return ApplyGradientsTo(&call, table_.get(), optimizer, hyper, references, grads, distinct);
  });
}

Status GpuTable::Assign(const EngineContext& context, Span<const int64_t> keys, const float* values) {
  return WithTable(context, own_, table_.get(), [&](GpuCall& call) {
    return AssignRows(call.stream(), call.scratch(), table_.get(), keys.data(), keys.size(), values);
  });
}

Status GpuTable::Erase(const EngineContext& context, Span<const int64_t> keys, int64_t* erased) {
  return WithTable(context, own_, table_.get(), [&](GpuCall& call) {
    return table_->Erase(call.stream(), call.scratch(), keys.data(), keys.size(), erased);
  });
}

Status GpuTable::SetGlobalStep(int64_t step) {
  const MutexLock lock(table_->mutex());
  return table_->SetGlobalStep(step);
}

StatusOr<std::unique_ptr<HeldTable>> GpuTable::Hold(const EngineContext& context) {
  return HoldTable(context, own_, table_.get());
}

}  // namespace sok
