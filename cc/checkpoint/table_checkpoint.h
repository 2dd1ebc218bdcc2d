// Saves and restores whole tables: weights, optimizer, counts, ids that wait for admission.
// docs/checkpoint-format.md describes the format.
//
// A checkpoint of a table is a set of files on a disk that all ranks share: checkpoint_path.h. Each rank
// writes its shard. The manifest gets its final name only when all other files are complete and synced.
// Memory beside the table: buffers of 1 MiB per array, and some 50 bytes for each MiB of the checkpoint.
#ifndef SOK_CC_CHECKPOINT_TABLE_CHECKPOINT_H_
#define SOK_CC_CHECKPOINT_TABLE_CHECKPOINT_H_

#include <memory>
#include <string>

#include "cc/base/status.h"
#include "cc/checkpoint/files.h"
#include "cc/engine/engine.h"
#include "cc/table/table_options.h"

namespace sok {

struct SaveRequest {
  std::string prefix;  // TensorFlow's: /ckpt/model.ckpt-100
  std::string id;      // 16 lower-case hex digits, new for each save and the same on all ranks
  bool delta = false;  // save the changes since the last checkpoint; everything if there is none to build on
  Files* files = &PosixFiles();
  std::string name = {};  // the table's name in the checkpoint; empty: the variable's name
};

// The stages of saving one table. A rank runs a stage only after all ranks have finished the stage before;
// Publish on rank 0 comes before Publish on the others. After any failure, AbandonTableCheckpoint and
// EndTableCheckpoint with ok = false follow. No stage touches another save: retention.py, which knows all
// checkpoints, removes replaced ones and what a killed process left.

// Rank 0 chooses between a full checkpoint and a delta; other ranks do nothing. The checkpoint is full if
// there is no earlier one to build on: the first one, and that after a restore or a failed save. It is also
// full if the last checkpoint or one of its chain is missing on disk or has the table under a different name,
// if the betas or epsilon of exact Adam have changed or its history was restarted, and if the chain has
// reached 1000 checkpoints. It is always full with keras_rmsprop and nadam, whose rows lag without a history.
Status BeginTableCheckpoint(const EngineContext& context, EngineTable* table, const SaveRequest& request);

// Writes and syncs this rank's rows. First evicts the rows that the variable's eviction policy removes at a
// save; a full checkpoint also brings all rows up to date. NotFound if this rank does not see the file that
// rank 0 made; FailedPrecondition if this rank cannot write the delta that rank 0 chose.
Status WriteTableShard(const EngineContext& context, EngineTable* table, const SaveRequest& request);

// Rank 0 completes the checkpoint. Returns the reference to it, the same on every rank: JSON with "folder",
// relative to the prefix's folder, "manifest_crc32" and "steps". FailedPrecondition on rank 0 if ranks have
// taken different numbers of steps.
StatusOr<std::string> PublishTableCheckpoint(const TableOptions& table, const SaveRequest& request);

// Rank 0 removes the files of the checkpoint.
void AbandonTableCheckpoint(const TableOptions& table, const SaveRequest& request);

// Called with `ok` after the reference has been stored where readers find it: a table that tracks its changes
// now does so since this checkpoint. Without `ok`, after a failure: the next checkpoint is a full one.
Status EndTableCheckpoint(const EngineContext& context, EngineTable* table, const SaveRequest& request,
                          bool ok);

// The parts of a checkpoint to restore.
struct RestoreParts {
  bool optimizer = true;  // its state and slots; if false, the table accepts any optimizer at its first step
  bool counts = true;     // clocks, frequencies, last steps and uses, ids that wait for admission
  Files* files = &PosixFiles();
};

// One table's checkpoint, read by one rank. The number of ranks may differ from that of the save.
//
// Errors of all members: NotFound for a missing file, DataLoss for a damaged one, with its name;
// FailedPrecondition for a symbolic link in its place (files.h); InvalidArgument if the variable differs
// (dim, dtype of keys, hashing); ResourceExhausted if its capacity is too small. Not thread-safe.
class TableRestore {
 public:
  virtual ~TableRestore() = default;

  // Reads the manifests. `reference` is what PublishTableCheckpoint returned, or the table's path.
  // `options` are the variable's, rank and number of ranks included.
  static StatusOr<std::unique_ptr<TableRestore>> Open(const std::string& prefix, const std::string& reference,
                                                      const TableOptions& options, const RestoreParts& parts);

  // The variable's options, with the seed of the checkpoint's initializer if that has the same kind and
  // range: new keys then get the rows that they would have got in the saved table.
  virtual const TableOptions& options() const = 0;

  // Reads everything that Load will read and verifies all checksums. After that Load fails only if the disk
  // fails, or if the rows of a chain, or of another number of ranks, exceed the capacity.
  virtual Status Check() = 0;

  // A table of `engine` with options() and the contents of the checkpoint.
  virtual StatusOr<std::shared_ptr<EngineTable>> Load(const EngineContext& context, Engine* engine) = 0;
};

// Writes the chain that ends in `folder` as one full checkpoint for the request's prefix and id, with the
// same number of shards. One shard at a time is in memory, in a table of `engine`. Returns the new
// checkpoint's reference. After an error, the new checkpoint's files have been removed. InvalidArgument if
// request.delta.
StatusOr<std::string> CompactCheckpoint(const EngineContext& context, Engine* engine,
                                        const std::string& folder, const SaveRequest& request);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TABLE_CHECKPOINT_H_
