#ifndef SOK_CC_CHECKPOINT_TABLE_REPLACEMENT_H_
#define SOK_CC_CHECKPOINT_TABLE_REPLACEMENT_H_

#include <memory>
#include <string>

#include "cc/base/function_ref.h"
#include "cc/base/status.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/engine/engine.h"

namespace sok {

// A table that a checkpoint is to take the place of. Restores of several tables, on several ranks, check all
// of them before they replace any.
class TableReplacement {
 public:
  // Reads and verifies the whole checkpoint, for the variable that has `current` now. Where that has no rows
  // the new table is loaded already: reading it twice would only cost time, and a table beside an empty one
  // costs no memory.
  static StatusOr<TableReplacement> Check(const EngineContext& context, EngineTable* current,
                                          const std::string& prefix, const std::string& reference,
                                          const RestoreParts& parts);

  // Calls replace(table) with the new table, of the engine of `current`. Where `current` has rows, it first
  // does so with a table without any, so that two full ones never lie in memory, and loads then: the caller
  // keeps no table that it has replaced, and `current` may be gone. Where the disk fails at that, what is
  // left is a table as its initializer makes it.
  Status Load(const EngineContext& context, EngineTable* current,
              FunctionRef<void(std::shared_ptr<EngineTable> table)> replace) const;

 private:
  explicit TableReplacement(std::unique_ptr<TableRestore> restore) : restore_(std::move(restore)) {}

  std::unique_ptr<TableRestore> restore_;
  std::shared_ptr<EngineTable> loaded_;  // null where `current` had rows
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TABLE_REPLACEMENT_H_
