#ifndef SOK_CC_CHECKPOINT_SHARD_WRITER_H_
#define SOK_CC_CHECKPOINT_SHARD_WRITER_H_

#include <optional>
#include <string>

#include "cc/base/executor.h"
#include "cc/base/status.h"
#include "cc/checkpoint/files.h"
#include "cc/checkpoint/manifest.h"
#include "cc/engine/held_table.h"

namespace sok {

// The state of a table's optimizer for a manifest; none before its first step. With `history` includes the
// steps that rows may have missed.
StatusOr<std::optional<SavedOptimizer>> SavedOptimizerOf(HeldTable* table, bool history);

// Writes and syncs the arrays of the shard of table->options().rank at the table's path `folder`: all rows,
// which must be up to date, or for a delta the changed rows. Does not sync the files' names.
StatusOr<SavedShard> WriteShard(Executor& executor, Files& files, const std::string& folder, HeldTable* table,
                                bool delta);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_SHARD_WRITER_H_
