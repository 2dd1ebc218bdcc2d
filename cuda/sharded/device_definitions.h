#ifndef SOK_CUDA_SHARDED_DEVICE_DEFINITIONS_H_
#define SOK_CUDA_SHARDED_DEVICE_DEFINITIONS_H_

#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/span.h"
#include "cc/sharded/agreement.h"
#include "cuda/table/device_table.h"

namespace sok {

// Takes the table's lock. Points to its options.
inline TableDefinition DefinitionOf(const DeviceTable& table, ExchangeMode mode) {
  const MutexLock lock(table.mutex());
  const DeviceOptimizer* const optimizer = table.optimizer();
  return {&table.options(), table.definition_fingerprint(), mode,
          optimizer == nullptr ? std::string() : std::string(optimizer->name())};
}

inline std::vector<TableDefinition> DefinitionsOf(Span<DeviceTable* const> tables,
                                                  Span<const ExchangeMode> modes) {
  std::vector<TableDefinition> definitions;
  for (int64_t t = 0; t < tables.size(); ++t) definitions.push_back(DefinitionOf(*tables[t], modes[t]));
  return definitions;
}

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_DEVICE_DEFINITIONS_H_
