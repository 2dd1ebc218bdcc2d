#ifndef SOK_CC_ENGINE_CPU_TABLE_H_
#define SOK_CC_ENGINE_CPU_TABLE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "cc/engine/engine_table.h"
#include "cc/table/table.h"

namespace sok {

// The EngineTable of a Table. Each call locks the table.
class CpuTable final : public EngineTable {
 public:
  CpuTable(Engine* engine, std::shared_ptr<Table> table) : EngineTable(engine), table_(std::move(table)) {}

  const TableOptions& options() const override { return table_->options(); }
  TableDescription Describe() const override;
  const LookupCounts& lookup_counts() const override { return *table_->lookup_counts(); }
  Status ApplyGradients(const EngineContext& context, std::string_view optimizer, Span<const float> hyper,
                        Span<const int64_t> references, const float* grads, bool distinct) override;
  Status Assign(const EngineContext& context, Span<const int64_t> keys, const float* values) override;
  Status Erase(const EngineContext& context, Span<const int64_t> keys, int64_t* erased) override;
  Status SetGlobalStep(int64_t step) override;
  StatusOr<std::unique_ptr<HeldTable>> Hold(const EngineContext& context) override;

  Table& table() const { return *table_; }

 private:
  const std::shared_ptr<Table> table_;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_CPU_TABLE_H_
