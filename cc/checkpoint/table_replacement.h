#ifndef SOK_CC_CHECKPOINT_TABLE_REPLACEMENT_H_
#define SOK_CC_CHECKPOINT_TABLE_REPLACEMENT_H_

#include <memory>
#include <string>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/status.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/engine/engine.h"

namespace sok {

// A table whose checkpoint has at most kSmallTable bytes is loaded beside the one that it replaces: reading
// it twice would take longer. Those of a restore may have kSmallTables bytes together.
constexpr int64_t kSmallTable = int64_t{4} << 20;
constexpr int64_t kSmallTables = int64_t{256} << 20;

// The replacement of a table by a checkpoint. A restore of several tables on several ranks verifies all
// checkpoints before it replaces any table.
class TableReplacement {
 public:
  // Reads and verifies the table `name` of a checkpoint for the variable whose table is `current`. If
  // `current` has no rows, or the new table is small and has at most *spare bytes, it is loaded at once. A
  // small table's bytes are taken from *spare.
  static StatusOr<TableReplacement> Check(const EngineContext& context, EngineTable* current,
                                          OpenedCheckpoints& opened, const std::string& prefix,
                                          const std::string& name, const RestoreParts& parts, int64_t* spare);

  // Calls replace(table) with the new table, of the engine of `current`. If it is not loaded yet, first calls
  // replace with an empty table and loads after that, so that two full tables are never in memory: the caller
  // must release replaced tables, and `current` may be destroyed. If the load fails, the variable is left
  // with a newly initialized table. The new table tracks its changes if `current` did.
  Status Load(const EngineContext& context, EngineTable* current,
              FunctionRef<void(std::shared_ptr<EngineTable> table)> replace) const;

  // See TableRestore::left_out.
  std::vector<std::string> left_out() const { return restore_->left_out(); }

 private:
  explicit TableReplacement(std::unique_ptr<TableRestore> restore) : restore_(std::move(restore)) {}

  std::unique_ptr<TableRestore> restore_;
  std::shared_ptr<EngineTable> loaded_;  // null if Load reads it
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TABLE_REPLACEMENT_H_
