#ifndef SOK_CC_CHECKPOINT_RESTORE_ROWS_H_
#define SOK_CC_CHECKPOINT_RESTORE_ROWS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/status.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/saved_checkpoint.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/cpu/store/row_store.h"
#include "cc/engine/held_table.h"
#include "cc/table/table_options.h"

namespace sok {

// One shard of a table in one checkpoint.
struct ShardSource {
  SavedCheckpoint& checkpoint;
  const Manifest& manifest;
  int shard = 0;

  const SavedShard& saved() const { return manifest.shards[static_cast<size_t>(shard)]; }
  // Null if the shard has no such array.
  const PlacedArray* Find(const std::string& array) const {
    const auto found = saved().arrays.find(array);
    return found == saved().arrays.end() ? nullptr : &found->second;
  }
  // Opens an array, which the shard must have.
  StatusOr<std::unique_ptr<ArrayReader>> Open(const std::string& array) const;
};

// Selects the keys of a shard that this rank reads, and checks keys.
class KeyFilter {
 public:
  // For the rank options.rank of options.ranks. Both arguments must outlive the filter.
  KeyFilter(const TableOptions& options, const ShardSource& source);

  bool Wants(int64_t key) const { return owners_.Holds(options_.rank, key); }
  // DataLoss for a key that does not belong to the shard; ResourceExhausted for a key that has no row in a
  // table without hashing; InvalidArgument for one that another system wrote and the table cannot have.
  Status Check(int64_t key, const std::string& path) const;

 private:
  // Of another system's table.
  Status CheckForeign(int64_t key, const std::string& path) const;
  // In a table without hashing.
  Status CheckStatic(int64_t key, const std::string& path) const;

  const TableOptions& options_;
  const ShardSource& source_;
  const KeyOwners owners_;
  const KeyOwners saved_owners_;
  const int64_t least_;  // of the keys of the table's dtype
  const int64_t most_;
};

// Calls visit(keys) on the selected keys of an int64 array, which the shard must have, piece by piece, after
// checking all keys of the piece. DataLoss for a key that occurs twice in a piece.
Status ForEachKeyPiece(const ShardSource& source, const std::string& array, const KeyFilter& filter,
                       FunctionRef<Status(Span<const int64_t> keys)> visit);

// DataLoss for a key that two of the shards have, or one of them has twice, among those that this rank reads:
// keys with rows and keys that wait. Sorts some 32 MiB of keys at a time.
Status CheckDistinct(Span<const ShardSource> sources, const TableOptions& options);

// Which floats of rows are restored into a table.
enum class RowContents {
  kWeights,          // only weights
  kWeightsAndSlots,  // weights and slots; the table has the optimizer
  kWeightsCaughtUp,  // only weights, after the steps that the rows have missed
};

// Catches up single rows that have missed steps, outside a table.
class SavedRowCatchUp {
 public:
  // `optimizer` must have been given the past steps.
  static StatusOr<std::unique_ptr<SavedRowCatchUp>> Create(std::unique_ptr<Optimizer> optimizer, int64_t dim,
                                                           Span<const float> hyper);
  // The record to fill: weights, then slots.
  float* record() { return store_.weights(0); }
  // Takes the steps that the record has missed since the step `last_current`.
  void Run(int64_t last_current);

 private:
  SavedRowCatchUp(std::unique_ptr<Optimizer> optimizer, int64_t dim)
      : optimizer_(std::move(optimizer)), store_(dim) {}

  std::unique_ptr<Optimizer> optimizer_;
  RowStore store_;
};

struct RowsToRestore {
  RowContents contents = RowContents::kWeights;
  bool counts = true;                   // frequencies, last steps and uses too
  SavedRowCatchUp* catch_up = nullptr;  // for kWeightsCaughtUp
  bool checked = false;                 // the keys of this very checkpoint were checked before
  bool maps_weights = false;            // map them, if the table can; all keys of the shard are wanted
  int64_t first_step = 0;               // the step at which rows without "adam_step" were last current
};

// Reads the rows of a shard into a table. *rows += the number of rows read.
Status RestoreRows(Executor& executor, const ShardSource& source, const RowsToRestore& what, HeldTable* table,
                   int64_t* rows);

// Reads the ids that wait for admission, if the table has an admission filter.
Status RestoreWaiting(const ShardSource& source, HeldTable* table);

// Raises the counters of the table's Bloom filter to those of the shard, if both filters have the same shape.
Status RestoreBloom(const ShardSource& source, HeldTable* table);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_RESTORE_ROWS_H_
