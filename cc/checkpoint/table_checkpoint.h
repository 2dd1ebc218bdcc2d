// Saving and restoring whole tables: weights, optimizer, counts, ids not admitted yet. The format is
// described in docs/checkpoint-format.md.
//
// A checkpoint of a table is a folder. Several ranks write it together, each its shard, on a disk that all of
// them see; it has its final name only once it is complete and on the disk. Memory beside the table: buffers
// of 1 MiB per array, and some 30 bytes for each MiB of the checkpoint.
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
  bool delta = false;  // what changed since the last checkpoint; full where there is none to add to
  Files* files = &PosixFiles();
  std::string name = {};  // what the checkpoint calls the table; empty: as the variable is called
};

// The stages of saving one table. Every rank runs each stage once all ranks have done the one before; Publish
// on rank 0 comes before Publish elsewhere. Whatever fails, AbandonTableCheckpoint and EndTableCheckpoint
// with ok = false follow. Nothing of another save is touched: what has been replaced, or was left by a
// process that was killed, is removed by who knows which checkpoints there are (retention.py).

// Rank 0 makes the folder and decides between full and delta; others do nothing. It is a full one where there
// is nothing that changes count from: at first, after a restore or a failed save, where the last checkpoint
// or one that it builds on is no longer on the disk, or calls the table otherwise; where betas or epsilon of
// an exact Adam have changed, or its history began anew; and always with keras_rmsprop and nadam, whose rows
// lag without a history.
Status BeginTableCheckpoint(const EngineContext& context, EngineTable* table, const SaveRequest& request);

// Writes this rank's rows, synced to the disk. First the rows go that the variable's eviction policy sends
// away at a save; a full checkpoint also brings all rows up to date. NotFound where the folder that rank 0
// made is not to be seen.
Status WriteTableShard(const EngineContext& context, EngineTable* table, const SaveRequest& request);

// Rank 0 makes the checkpoint complete. Returns the reference to it, on every rank the same: JSON with
// "folder", relative to the prefix's folder, "manifest_crc32" and "steps".
StatusOr<std::string> PublishTableCheckpoint(const TableOptions& table, const SaveRequest& request);

// Rank 0 removes what is unfinished.
void AbandonTableCheckpoint(const TableOptions& table, const SaveRequest& request);

// After the reference has been stored where readers will find it (ok): the table counts its changes from this
// checkpoint on. Or after a failure: the next checkpoint is a full one.
Status EndTableCheckpoint(const EngineContext& context, EngineTable* table, const SaveRequest& request,
                          bool ok);

// Which parts of a checkpoint go into a table.
struct RestoreParts {
  bool optimizer = true;  // its state and slots; without it the table takes any optimizer at its first step
  bool counts = true;     // clocks, frequencies, last steps and uses, ids that wait for admission
  Files* files = &PosixFiles();
};

// One table's checkpoint, read by one rank. The number of ranks need not be the one that wrote it.
//
// Errors of all members: NotFound for what is not there, DataLoss for damage, with the file's name;
// FailedPrecondition for a symbolic link in its place (files.h); InvalidArgument where the variable is
// another (dim, dtype of keys, hashing), ResourceExhausted where its capacity does not suffice. Not
// thread-safe.
class TableRestore {
 public:
  virtual ~TableRestore() = default;

  // Reads the manifests. `reference` is what PublishTableCheckpoint returned, or the path of the folder.
  // `options` are the variable's, rank and number of ranks included.
  static StatusOr<std::unique_ptr<TableRestore>> Open(const std::string& prefix, const std::string& reference,
                                                      const TableOptions& options, const RestoreParts& parts);

  // The variable's, with the seed of the checkpoint's initializer where that is of the same kind and range:
  // keys that come later get the rows that they would have got.
  virtual const TableOptions& options() const = 0;

  // Reads everything that Load will read, and compares all checksums, so that Load can only fail where the
  // disk does, or where the rows of a chain, or of another number of ranks, turn out to be too many.
  virtual Status Check() = 0;

  // A table of `engine` with options(), and in it what the checkpoint has.
  virtual StatusOr<std::shared_ptr<EngineTable>> Load(const EngineContext& context, Engine* engine) = 0;
};

// Makes one full checkpoint of a chain: that of `prefix` and `id` out of the one that ends in `folder`, with
// as many shards, one of which is in memory at a time, in a table of `engine`. Returns the reference to it.
StatusOr<std::string> CompactCheckpoint(const EngineContext& context, Engine* engine,
                                        const std::string& folder, const SaveRequest& request);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TABLE_CHECKPOINT_H_
