#ifndef SOK_CC_CHECKPOINT_TABLE_REPLACEMENT_H_
#define SOK_CC_CHECKPOINT_TABLE_REPLACEMENT_H_

#include <memory>
#include <string>

#include "cc/base/function_ref.h"
#include "cc/base/status.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/engine/engine.h"

namespace sok {

// The replacement of a table by a checkpoint. A restore of several tables on several ranks verifies all
// checkpoints before it replaces any table.
class TableReplacement {
 public:
  // Reads and verifies the table `name` of a checkpoint for the variable whose table is `current`. If
  // `current` has no rows, the new table is loaded at once: reading twice would only cost time, and a table
  // beside an empty one needs no more memory.
  static StatusOr<TableReplacement> Check(const EngineContext& context, EngineTable* current,
                                          OpenedCheckpoints& opened, const std::string& prefix,
                                          const std::string& name, const RestoreParts& parts);

  // Calls replace(table) with the new table, of the engine of `current`. If `current` has rows, first calls
  // replace with an empty table and loads after that, so that two full tables are never in memory: the caller
  // must release replaced tables, and `current` may be destroyed. If the load fails, the variable is left
  // with a newly initialized table. The new table tracks its changes if `current` did.
  Status Load(const EngineContext& context, EngineTable* current,
              FunctionRef<void(std::shared_ptr<EngineTable> table)> replace) const;

 private:
  explicit TableReplacement(std::unique_ptr<TableRestore> restore) : restore_(std::move(restore)) {}

  std::unique_ptr<TableRestore> restore_;
  std::shared_ptr<EngineTable> loaded_;  // null if `current` had rows
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TABLE_REPLACEMENT_H_
