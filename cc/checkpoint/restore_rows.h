#ifndef SOK_CC_CHECKPOINT_RESTORE_ROWS_H_
#define SOK_CC_CHECKPOINT_RESTORE_ROWS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/status.h"
#include "cc/checkpoint/shard_keys.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/cpu/store/row_store.h"
#include "cc/engine/held_table.h"
#include "cc/table/table_options.h"

namespace sok {

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
  int64_t new_rows = 0;                 // about the number of rows that the table has not; a shard's
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
