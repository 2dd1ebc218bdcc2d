// How tables are written into a part of a checkpoint, by saves and by compaction.
#ifndef SOK_CC_CHECKPOINT_WRITTEN_TABLES_H_
#define SOK_CC_CHECKPOINT_WRITTEN_TABLES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/status.h"
#include "cc/checkpoint/array_file.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/saved_checkpoint.h"
#include "cc/engine/held_table.h"

namespace sok {

// The state of a table's optimizer for a manifest; none before its first step. With `history` includes the
// steps that rows may have missed.
StatusOr<std::optional<SavedOptimizer>> SavedOptimizerOf(HeldTable* table, bool history);

// Writes the arrays of the shard of table->options().rank, as the table `name`: all rows, which must be up to
// date, or for a delta the changed rows.
StatusOr<SavedShard> WriteShard(Executor& executor, PartWriter* part, const std::string& name,
                                HeldTable* table, bool delta, bool apart);

// Writes the shard of a table's rank, and on rank 0 the table's own entry, under `name`: a delta if it has a
// chain to build on, otherwise all rows, which must be up to date. `apart`: see SaveRequest.
Status WriteTable(Executor& executor, HeldTable* table, const TableOptions& described,
                  const std::string& name, const std::vector<ChainLink>& chain, bool apart, PartWriter* part);

// Writes the entries of another system's table as one of this library. It has one shard, with `rows` rows and
// the arrays that are there. What the other system does not tell is what tables have by default: initial rows
// of zeros, no limit, no eviction, and no filter unless `filter_freq`, above all counts of ids that wait, is
// positive.
Status WriteConverted(const Manifest& source, int64_t rows, std::map<std::string, PlacedArray> arrays,
                      int64_t filter_freq, PartWriter* part);

// The entries of a checkpoint that are not of tables with these names, which are in order.
std::vector<std::string> OtherEntries(const SavedCheckpoint& from, const std::vector<std::string>& tables);
// Copies entries of a checkpoint.
Status CopyEntries(SavedCheckpoint& from, const std::vector<std::string>& entries, PartWriter* part);

// Writes the entries of the whole checkpoint, once. `counted_by` may be empty.
Status WriteFacts(const CheckpointFacts& facts, const std::string& counted_by, PartWriter* part);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_WRITTEN_TABLES_H_
