#ifndef SOK_CC_CHECKPOINT_SHARD_WRITER_H_
#define SOK_CC_CHECKPOINT_SHARD_WRITER_H_

#include <optional>
#include <string>

#include "cc/base/executor.h"
#include "cc/base/status.h"
#include "cc/checkpoint/files.h"
#include "cc/checkpoint/manifest.h"
#include "cc/table/table.h"

namespace sok {

// The state of a table's optimizer as a manifest has it; with `history` that of rows that lag.
std::optional<SavedOptimizer> OptimizerOf(const Table& table, bool history);

// Writes the arrays of the shard of table.options().rank into `folder`: all of a table whose rows are up to
// date, or, of a delta, what changed. Everything is synced.
StatusOr<SavedShard> WriteShard(Executor& executor, Files& files, const std::string& folder,
                                const Table& table, bool delta);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_SHARD_WRITER_H_
