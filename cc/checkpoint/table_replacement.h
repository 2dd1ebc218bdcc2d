#ifndef SOK_CC_CHECKPOINT_TABLE_REPLACEMENT_H_
#define SOK_CC_CHECKPOINT_TABLE_REPLACEMENT_H_

#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/engine/engine.h"

namespace sok {

// The table that takes the place of a variable's in a restore. A restore of several tables on several ranks
// loads all of them before any changes places, so that a failure leaves everything as it was. Until then the
// old tables and the new ones are in memory.
struct TableReplacement {
  std::shared_ptr<EngineTable> table;
  std::vector<std::string> notices;  // see TableRestore::notices

  // Reads the table `name` of a checkpoint for the variable whose table is `current`, in one pass over its
  // files, into a new table of the same engine, which tracks its changes if `current` does.
  static StatusOr<TableReplacement> Load(const EngineContext& context, EngineTable* current,
                                         OpenedCheckpoints& opened, const std::string& prefix,
                                         const std::string& name, const RestoreParts& parts);
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TABLE_REPLACEMENT_H_
