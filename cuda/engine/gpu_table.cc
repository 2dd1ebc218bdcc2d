#include "cuda/engine/gpu_table.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/table/table_errors.h"
#include "cuda/base/device_buffer.h"
#include "cuda/dedup/dedup.h"
#include "cuda/group/gpu_call.h"
#include "cuda/group/group_training.h"
#include "cuda/store/row_pieces.h"
#include "cuda/table/device_table.h"

namespace sok {
namespace {

// The error for the first repeated key, which `inverse` shows. Waits.
Status RepeatedKey(cudaStream_t stream, DeviceTable* table, const int64_t* keys, const int32_t* inverse,
                   int64_t n) {
  SOK_ASSIGN_OR_RETURN(const int32_t* const fetched,
                       table->Named(table->round_trip().Fetch(stream, inverse, n)));
  int64_t at = 0;
  while (at < n && fetched[at] == at) ++at;
  SOK_ASSIGN_OR_RETURN(const int64_t* const key,
                       table->Named(table->round_trip().Fetch(stream, keys + at, 1)));
  return KeyToAssignOccursTwice(table->options(), *key);
}

Status CheckDistinct(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const int64_t* keys,
                     int64_t n) {
  SOK_ASSIGN_OR_RETURN(DeviceBuffer<int64_t> words,
                       table->Named(DeviceBuffer<int64_t>::Allocate(scratch, stream, 4)));
  SOK_ASSIGN_OR_RETURN(DeviceBuffer<int32_t> numbers,
                       table->Named(DeviceBuffer<int32_t>::Allocate(scratch, stream, 2 * n)));
  int64_t* const begin = words.data();
  const int64_t table_begin[2] = {0, n};
  SOK_RETURN_IF_ERROR(table->Named(table->upload().Copy(stream, table_begin, sizeof(table_begin), begin)));
  int32_t* const inverse = numbers.data();
  UniqueIds unique;
  unique.begin = begin + 2;
  unique.inverse = inverse;
  unique.position = inverse + n;
  SOK_RETURN_IF_ERROR(table->Named(Dedup(stream, scratch, {keys, begin, 1, n}, unique)));
  SOK_ASSIGN_OR_RETURN(const int64_t* const fetched,
                       table->Named(table->round_trip().Fetch(stream, unique.begin, 2)));
  if (fetched[1] == n) return OkStatus();
  return RepeatedKey(stream, table, keys, inverse, n);
}

// EngineTable::Assign: keys[n] and values[n, dim] are on the device. Waits for the device.
Status AssignRows(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const int64_t* keys,
                  int64_t n, const float* values) {
  if (n == 0) return OkStatus();
  if (n > std::numeric_limits<int32_t>::max()) return TooManyKeys(table->options(), n);
  SOK_RETURN_IF_ERROR(CheckDistinct(stream, scratch, table, keys, n));
  SOK_ASSIGN_OR_RETURN(DeviceBuffer<int64_t> memory,
                       table->Named(DeviceBuffer<int64_t>::Allocate(scratch, stream, n)));
  int64_t* const rows = memory.data();
  SOK_RETURN_IF_ERROR(table->FindOrMake(stream, scratch, keys, n, /*own=*/true, rows));
  // A row with postponed steps must not take them after it got its new weights.
  SOK_RETURN_IF_ERROR(table->BringUpToDate(stream, {rows, 0, n}));
  SOK_RETURN_IF_ERROR(
      table->Named(ScatterRows(stream, table->rows(), {rows, 0, n}, 0, table->options().dim, values)));
  return table->Named(table->changes().MarkChanged(stream, rows, n));
}

// Calls work(call, table) with the table locked, ordered after earlier work on it.
template <typename Work>
Status WithTable(const EngineContext& context, DeviceAllocator* own, DeviceTable* table, const Work& work) {
  return WithinMemory([&] {
    GpuCall call(context, own);
    TablesAtWork at_work(call.stream(), &call.executor(), Span<DeviceTable* const>(&table, 1));
    SOK_RETURN_IF_ERROR(at_work.Enter());
    return work(call);
  });
}

}  // namespace

TableDescription GpuTable::Describe() const {
  const MutexLock lock(table_->mutex());
  // If the device is lost, so are the counts.
  const StatusOr<TierCounts> tiers = table_->FetchTierCounts();
  return {table_->size(), table_->bytes(), table_->steps(),
          table_->optimizer() == nullptr ? "" : table_->optimizer()->name(),
          tiers.ok() ? tiers.value() : TierCounts()};
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
