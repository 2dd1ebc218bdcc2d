#ifndef SOK_CC_ENGINE_HELD_CPU_TABLE_H_
#define SOK_CC_ENGINE_HELD_CPU_TABLE_H_

#include <memory>

#include "cc/base/executor.h"
#include "cc/engine/held_table.h"
#include "cc/table/table.h"

namespace sok {

// Locks a table of the CPU engine: waits for its mutex, and holds it until the result is destroyed. Pieces
// point into the table's records. Both arguments must outlive the result.
std::unique_ptr<HeldTable> HoldTable(Executor& executor, Table* table);

}  // namespace sok

#endif  // SOK_CC_ENGINE_HELD_CPU_TABLE_H_
