// The messages between ranks during a save: files of the unfinished checkpoint, which are removed before it
// is published. `table` is the table's path: see checkpoint_path.h.
#ifndef SOK_CC_CHECKPOINT_SAVE_NOTES_H_
#define SOK_CC_CHECKPOINT_SAVE_NOTES_H_

#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/files.h"
#include "cc/checkpoint/manifest.h"

namespace sok {

// The decision of rank 0.
struct SavePlan {
  bool delta = false;
  std::vector<ChainLink> chain;
};

// What one rank wrote: a manifest with only its shard. The published manifest takes all but the shards from
// rank 0.
struct ShardNote {
  SavedTable table;
  int64_t steps = 0;
  int64_t uses = 0;
  std::optional<SavedOptimizer> optimizer;
  SavedShard shard;
};

// Each writes and syncs one file.
Status WriteSavePlan(Files& files, const std::string& table, const SavePlan& plan);
Status WriteShardNote(Files& files, const std::string& table, int shard, const ShardNote& note);

StatusOr<SavePlan> ReadSavePlan(Files& files, const std::string& table);
StatusOr<ShardNote> ReadShardNote(Files& files, const std::string& table, int shard);

// Removes the plan and all notes.
Status RemoveNotes(Files& files, const std::string& table, int shards);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_SAVE_NOTES_H_
