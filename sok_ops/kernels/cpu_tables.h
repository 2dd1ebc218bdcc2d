// Temporary: how the kernels of checkpoints, raw files and exports, which work on a Table, get at it behind
// the seam. It goes when these are calls of the engine, too.
#ifndef SOK_SOK_OPS_KERNELS_CPU_TABLES_H_
#define SOK_SOK_OPS_KERNELS_CPU_TABLES_H_

#include <memory>
#include <utility>

#include "cc/engine/cpu_table.h"
#include "cc/engine/registry.h"

namespace sok {

inline Table* CpuTableBehind(const EngineTable& table) {
  return &static_cast<const CpuTable&>(table).table();
}

inline std::shared_ptr<EngineTable> BehindSeam(std::shared_ptr<Table> table) {
  return std::make_shared<CpuTable>(FindEngine("cpu").value(), std::move(table));
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_CPU_TABLES_H_
