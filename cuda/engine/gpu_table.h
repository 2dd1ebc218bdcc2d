#ifndef SOK_CUDA_ENGINE_GPU_TABLE_H_
#define SOK_CUDA_ENGINE_GPU_TABLE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cc/engine/engine_table.h"
#include "cc/engine/held_table.h"
#include "cuda/base/device_buffer.h"
#include "cuda/group/group_training.h"
#include "cuda/table/device_table.h"

namespace sok {

// A DeviceTable behind the engine interface. Each call locks the table.
class GpuTable final : public EngineTable {
 public:
  // `own` is the engine's memory, which must outlive the table.
  GpuTable(Engine* engine, DeviceAllocator* own, std::unique_ptr<DeviceTable> table)
      : EngineTable(engine), own_(own), table_(std::move(table)) {}

  const TableOptions& options() const override { return table_->options(); }
  TableDescription Describe() const override;
  const LookupCounts& lookup_counts() const override { return *table_->lookup_counts(); }
  Status ApplyGradients(const EngineContext& context, std::string_view optimizer, Span<const float> hyper,
                        Span<const int64_t> references, const float* grads, bool distinct) override;
  Status Assign(const EngineContext& context, Span<const int64_t> keys, const float* values) override;
  Status Erase(const EngineContext& context, Span<const int64_t> keys, int64_t* erased) override;
  Status SetGlobalStep(int64_t step) override;
  StatusOr<std::unique_ptr<HeldTable>> Hold(const EngineContext& context) override;

  DeviceTable& table() const { return *table_; }

 private:
  DeviceAllocator* own_;
  const std::unique_ptr<DeviceTable> table_;
};

inline DeviceTable* DeviceTableOf(EngineTable* table) { return &static_cast<GpuTable*>(table)->table(); }

inline std::vector<DeviceTable*> DeviceTablesOf(Span<EngineTable* const> tables) {
  std::vector<DeviceTable*> device_tables;
  for (EngineTable* table : tables) device_tables.push_back(DeviceTableOf(table));
  return device_tables;
}

inline std::vector<DeviceTableStep> DeviceStepsOf(Span<const EngineStep> steps) {
  std::vector<DeviceTableStep> device_steps;
  for (const EngineStep& step : steps) {
    device_steps.push_back({step.position, DeviceTableOf(step.table), step.hyper});
  }
  return device_steps;
}

// The number of rows that a pass over a table selects from at a time. Whatever the table's size, a pass takes
// about 9 bytes of device memory for each of them, and one piece of rows (rows_in_pieces.h).
constexpr int64_t kRowsOfWindow = int64_t{1} << 20;

// EngineTable::Hold: locks the table until the result is destroyed. Works on the context's stream, and waits
// for the device when it takes or returns something on the host, and once for each window of rows. `own` is
// the engine's memory. `window_rows` is a multiple of 32 below 2^31.
StatusOr<std::unique_ptr<HeldTable>> HoldTable(const EngineContext& context, DeviceAllocator* own,
                                               DeviceTable* table, int64_t window_rows = kRowsOfWindow);

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_GPU_TABLE_H_
