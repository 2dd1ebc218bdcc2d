#include "cc/engine/cpu_table.h"

#include <limits>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/within_memory.h"
#include "cc/dedup/dedup.h"
#include "cc/engine/held_cpu_table.h"
#include "cc/table/table_errors.h"

namespace sok {
namespace {

// Runs work(). If memory runs out, the error names the variable, as those of the table do.
template <typename Work>
Status WithinMemoryOf(const Table& table, const Work& work) {
  return NamedError(table.options(), WithinMemory(work));
}

// InvalidArgument for the first key that repeats an earlier one.
Status CheckDistinct(Executor& executor, const Table& table, Span<const int64_t> keys) {
  if (keys.size() > std::numeric_limits<int32_t>::max()) return TooManyKeys(table.options(), keys.size());
  Deduplicator deduplicator;
  std::vector<int64_t> unique;
  std::vector<int32_t> inverse(keys.size());
  SOK_RETURN_IF_ERROR(deduplicator.Run(executor, keys, &unique, Span<int32_t>(inverse)));
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (inverse[i] != i) return KeyToAssignOccursTwice(table.options(), keys[i]);
  }
  return OkStatus();
}

}  // namespace

TableDescription CpuTable::Describe() const {
  const MutexLock lock(table_->mutex());
  return {table_->size(), table_->bytes(), table_->steps(), table_->optimizer_name()};
}

Status CpuTable::ApplyGradients(const EngineContext& context, std::string_view optimizer,
                                Span<const float> hyper, Span<const int64_t> references, const float* grads,
                                bool distinct) {
  const MutexLock lock(table_->mutex());
  return WithinMemoryOf(*table_, [&] {
    return table_->ApplyGradients(context.executor, optimizer, hyper, references, grads, distinct);
  });
}

Status CpuTable::Assign(const EngineContext& context, Span<const int64_t> keys, const float* values) {
  return WithinMemoryOf(*table_, [&] {
    SOK_RETURN_IF_ERROR(CheckDistinct(context.executor, *table_, keys));
    const MutexLock lock(table_->mutex());
    return table_->Assign(context.executor, keys, values);
  });
}

Status CpuTable::Erase(const EngineContext& context, Span<const int64_t> keys, int64_t* erased) {
  const MutexLock lock(table_->mutex());
  return WithinMemoryOf(*table_, [&] { return table_->Erase(context.executor, keys, erased); });
}

Status CpuTable::SetGlobalStep(int64_t step) {
  const MutexLock lock(table_->mutex());
  return WithinMemoryOf(*table_, [&] {
    table_->SetGlobalStep(step);
    return OkStatus();
  });
}

StatusOr<std::unique_ptr<HeldTable>> CpuTable::Hold(const EngineContext& context) {
  return HoldTable(context.executor, table_.get());
}

}  // namespace sok
