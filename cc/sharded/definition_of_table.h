#ifndef SOK_CC_SHARDED_DEFINITION_OF_TABLE_H_
#define SOK_CC_SHARDED_DEFINITION_OF_TABLE_H_

#include "cc/base/mutex.h"
#include "cc/sharded/agreement.h"
#include "cc/table/table.h"

namespace sok {

// Takes the table's lock. Points to its options.
inline TableDefinition DefinitionOf(const Table& table, ExchangeMode mode) {
  const MutexLock lock(table.mutex());
  return {&table.options(), table.definition_fingerprint(), mode, table.optimizer_name()};
}

}  // namespace sok

#endif  // SOK_CC_SHARDED_DEFINITION_OF_TABLE_H_
