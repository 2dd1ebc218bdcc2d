#ifndef SOK_CC_CHECKPOINT_SHARD_WRITER_H_
#define SOK_CC_CHECKPOINT_SHARD_WRITER_H_

#include <optional>
#include <string>

#include "cc/base/executor.h"
#include "cc/base/status.h"
#include "cc/checkpoint/array_file.h"
#include "cc/checkpoint/manifest.h"
#include "cc/engine/held_table.h"

namespace sok {

// The state of a table's optimizer for a manifest; none before its first step. With `history` includes the
// steps that rows may have missed.
StatusOr<std::optional<SavedOptimizer>> SavedOptimizerOf(HeldTable* table, bool history);

// Writes the arrays of the shard of table->options().rank, as the table `name`: all rows, which must be up to
// date, or for a delta the changed rows.
StatusOr<SavedShard> WriteShard(Executor& executor, PartWriter* part, const std::string& name,
                                HeldTable* table, bool delta, bool apart);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_SHARD_WRITER_H_
