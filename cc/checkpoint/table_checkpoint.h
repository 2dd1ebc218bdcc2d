// Saves and restores whole tables: weights, optimizer, counts, ids that wait for admission.
// docs/checkpoint-format.md describes the format.
//
// Tables are tensors in a checkpoint of TensorFlow, on a disk that all ranks share. Each rank writes one data
// file, with its shards of all tables. The index, which TensorFlow's Saver would write, gets its name when
// all data files are complete and synced: that one operation makes the checkpoint exist, the program's other
// variables included. Memory beside the tables: buffers of 1 MiB per array of one table, 4 MiB of small
// arrays, and some 50 bytes for each MiB of the checkpoint.
#ifndef SOK_CC_CHECKPOINT_TABLE_CHECKPOINT_H_
#define SOK_CC_CHECKPOINT_TABLE_CHECKPOINT_H_

#include <memory>
#include <string>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/checkpoint/files.h"
#include "cc/checkpoint/saved_checkpoint.h"
#include "cc/engine/engine.h"
#include "cc/table/table_options.h"

namespace sok {

struct SaveRequest {
  std::string prefix;  // TensorFlow's: /ckpt/model.ckpt-100
  std::string id;      // 16 lower-case hex digits, new for each save and the same on all ranks
  bool delta = false;  // save the changes since the last checkpoint; everything if there is none to build on
  std::string counted_by =
      {};              // the kind of Saver whose max_to_keep counts it: "full", "incremental", "" for none
  bool apart = false;  // the ranks are servers, on which steps go on between the parts' moments
  Files* files = &PosixFiles();
};

struct TableToSave {
  EngineTable* table;
  std::string name = {};  // in the checkpoint; empty: the variable's name
};

// The stages of a save. A rank runs a stage only after all ranks have finished the stage before. After any
// failure, AbandonCheckpoint and EndTableCheckpoint with ok = false follow. No stage touches an earlier
// checkpoint before CommitCheckpoint replaces one that had the same prefix.

// Rank 0 chooses between full tables and deltas; other ranks do nothing. A table is saved in full if there is
// no earlier checkpoint to build on: the first time, and after a restore or a failed save. It is also saved
// in full if its last checkpoint or one of its chain is missing on disk or has the table under a different
// name, if the betas or epsilon of exact Adam have changed or its history was restarted, and if the chain has
// reached 1000 checkpoints. It always is with keras_rmsprop and nadam, whose rows lag without a history, and,
// if ranks are `apart`, with every optimizer whose rows lag: their steps would be those of one history.
Status BeginCheckpoint(const EngineContext& context, Span<const TableToSave> tables,
                       const SaveRequest& request);

// Writes and syncs this rank's rows of all tables, which are of one rank. First evicts the rows that the
// variables' eviction policies remove at a save; full tables also bring all rows up to date. NotFound if this
// rank does not see the file that rank 0 made; FailedPrecondition if this rank cannot write the delta that
// rank 0 chose. If ranks are `apart`, the first step of a table may come between them: the shards without it
// are read with the slots of rows without a step.
Status WriteCheckpointPart(const EngineContext& context, Span<const TableToSave> tables,
                           const SaveRequest& request);

// The prefix at which TensorFlow writes the program's other variables before CommitCheckpoint.
std::string PrefixOfOthers(const SaveRequest& request);

// Rank 0 makes one checkpoint of the parts of all ranks and, if `with_others`, of the one at PrefixOfOthers.
// FailedPrecondition if ranks have taken different numbers of steps, unless they are `apart`.
Status CommitCheckpoint(const SaveRequest& request, int ranks, bool with_others);

// Rank 0 removes the files of the save, unless it was committed. Ignores errors.
void AbandonCheckpoint(const SaveRequest& request);

// Called with `ok` after the save: a table that tracks its changes now does so since this checkpoint. Without
// `ok`, after a failure: the next save is a full one.
Status EndTableCheckpoint(const EngineContext& context, EngineTable* table, const SaveRequest& request,
                          bool ok);

// The parts of a checkpoint to restore.
struct RestoreParts {
  bool optimizer = true;  // its state and slots; if false, the table accepts any optimizer at its first step
  bool counts = true;     // clocks, frequencies, last steps and uses, ids that wait for admission
  // Whether tables that get no slots may map the weights of the chain's full checkpoint, as FileReader::MapAt
  // does, instead of reading them. They are where the shards are those of as many ranks.
  bool map_weights = false;
  // The optimizer with which this program trains the table, which another system's checkpoint does not tell:
  // see TakeSlots. Empty: none.
  std::string trained_by = {};
};

// One table's checkpoint, read by one rank. The number of ranks may differ from that of the save.
//
// Errors of all members: NotFound for a missing file, DataLoss for a damaged one, with its name;
// InvalidArgument if the variable differs (dim, dtype of keys, hashing); ResourceExhausted if its capacity is
// too small. Not thread-safe.
class TableRestore {
 public:
  virtual ~TableRestore() = default;

  // Reads the entries of the table `name` in the checkpoint `prefix`. `options` are the variable's, rank and
  // number of ranks included. Of `opened`, only the files must outlive the result.
  static StatusOr<std::unique_ptr<TableRestore>> Open(OpenedCheckpoints& opened, const std::string& prefix,
                                                      const std::string& name, const TableOptions& options,
                                                      const RestoreParts& parts);

  // The variable's options, with the seed of the checkpoint's initializer if that has the same kind and
  // range: new keys then get the rows that they would have got in the saved table. If the options lack the
  // rows of a kGiven initializer, these are the checkpoint's.
  virtual const TableOptions& options() const = 0;

  // What users should know, as sentences that name the variable: which tensors of another system's table it
  // has no place for, if its optimizer is restored, and that rows or slots are of another type in the files.
  virtual std::vector<std::string> notices() const = 0;

  // A table of `engine` with options() and the contents of the checkpoint. Reads each block of the files
  // once, and verifies its checksum.
  virtual StatusOr<std::shared_ptr<EngineTable>> Load(const EngineContext& context, Engine* engine) = 0;

  // For a table that is brought up to date in place. Leaves to Check and Apply only what came after the save
  // `since`, one of the chain's. FailedPrecondition if it is none, or if every row changes between two saves,
  // as with exact Adam.
  virtual Status StartAfter(const std::string& since) = 0;
  // Reads everything that Apply will read and verifies all checksums. After that Apply fails only if the disk
  // fails, or if the rows exceed the capacity.
  virtual Status Check() = 0;
  // Brings a table up to date that has the contents of the save given to StartAfter, and no optimizer. If it
  // fails, the table has a part of the changes.
  virtual Status Apply(Executor& executor, HeldTable* table) = 0;
};

// What of a checkpoint to write anew.
struct CompactionParts {
  std::vector<std::string> tables = {};  // their names; empty: all, and all other tensors
  // Only rows, for lookups: no optimizers and counts, no limits, keys as int64.
  bool for_serving = false;
};

// Writes the checkpoint `prefix` with the chains of all its tables, and its other tensors, as one full
// checkpoint for the request's prefix and id, with the same number of shards. One shard of one table at a
// time is in memory, in a table of `engine`. After an error, the new checkpoint's files have been removed.
// InvalidArgument if request.delta, and if `prefix` has no table.
Status CompactCheckpoint(const EngineContext& context, Engine* engine, const std::string& prefix,
                         const SaveRequest& request, const CompactionParts& parts = {});

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TABLE_CHECKPOINT_H_
