#ifndef SOK_CUDA_TRAINING_DEVICE_OPTIMIZER_H_
#define SOK_CUDA_TRAINING_DEVICE_OPTIMIZER_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/optimizers/optimizer.h"
#include "cuda/base/device_allocator.h"
#include "cuda/base/staged_upload.h"
#include "cuda/store/row_column.h"
#include "cuda/store/row_pieces.h"
#include "cuda/store/row_store_view.h"
#include "cuda/training/device_adam_history.h"
#include "cuda/training/device_powers.h"
#include "cuda/training/gradient_sums.h"
#include "cuda/training/row_updates.h"

namespace sok {

struct DeviceCatchUp;
struct DeviceStep;

// One optimizer of one table whose rows are on the device: what Optimizer (cc/optimizers/optimizer.h) is on
// the CPU, with the same bits where calls come in the same order. What belongs to a row lies in its record.
//
// Order of calls: CheckHyper; the store's SetSlots; Reserve; then any number of OnNewRows, EnqueueSteps and
// EnqueueCatchUps. One thread at a time; all work is in the order of one stream, or of streams that wait for
// each other. Each call that has a stream returns ResourceExhausted where memory does not suffice and
// Internal where work cannot be put into the stream.
class DeviceOptimizer {
 public:
  // What this keeps on the device comes from `memory`, which outlives it. An unknown name is an
  // InvalidArgument that lists the known ones.
  static StatusOr<std::unique_ptr<DeviceOptimizer>> Make(std::string_view name, DeviceAllocator* memory);

  const RuleInfo& rule() const { return rule_; }
  const std::string& name() const { return rule_.name; }
  // Steps taken since the optimizer was made, those before a restored checkpoint included.
  int64_t steps() const { return steps_; }
  Status CheckHyper(Span<const float> hyper) const { return rule_.CheckHyper(hyper); }

  // Makes room for the state that is kept for each of the rows [0, rows).
  Status Reserve(cudaStream_t stream, int64_t rows);
  // Rows have been handed out, none of them beyond the last Reserve: numbers rows[n] on the device, below 0
  // for none. No references.
  Status OnNewRows(cudaStream_t stream, const int64_t* rows, int64_t n);
  // Row numbers below this one have been in use: passes over the whole table stop there.
  void UseRows(int64_t rows);

  // Whether rows that a step does not touch change nevertheless. CatchUp has to come before they are read.
  bool has_catch_up() const { return rule_.untouched != UntouchedRows::kStay; }

  // Of rules with a catch-up: when each row was last current, in the column's own count of steps. A column
  // starts with zeros. ColumnStep and StepOf translate from and to steps(): a restored step is one that
  // past_steps() has, or the last before.
  ColumnView<uint32_t> last_current() const { return last_current_.view(); }
  uint32_t ColumnStep(int64_t step) const;
  int64_t StepOf(uint32_t column_step) const { return steps_ - (now_ - column_step); }

  // As of Optimizer, for checkpoints.
  bool can_save_lag() const { return rule_.untouched == UntouchedRows::kMove; }
  PastSteps past_steps() const;
  // Afterwards all rows count as current; their last steps may be written into last_current() then.
  Status RestorePastSteps(cudaStream_t stream, const PastSteps& past);
  Status ForgetPastSteps(cudaStream_t stream);
  std::string SerializeState() const;
  Status RestoreState(cudaStream_t stream, std::string_view state);

  // For kernels that are put into the stream before the next call.
  PastView past() const;

 private:
  friend Status EnqueueSteps(cudaStream_t stream, DeviceAllocator* scratch, const OccurrenceSegments& group,
                             Span<const DeviceStep> steps);
  friend Status EnqueueCatchUps(cudaStream_t stream, Span<const DeviceCatchUp> catch_ups);

  DeviceOptimizer(const RuleInfo& rule, std::vector<int> decay_of_slot, DeviceAllocator* memory)
      : rule_(rule), decay_of_slot_(std::move(decay_of_slot)), memory_(memory), last_current_(memory) {}

  // Whether rows can have missed steps that this remembers.
  bool has_past() const { return history_ != nullptr || !factors_.empty(); }
  // Makes the past one of these hyper-parameters that has room for another step. Where it was another's, all
  // rows of `table` catch up first.
  Status Prepare(cudaStream_t stream, Span<const float> hyper, const RowStoreView& table);
  bool IsPastOf(Span<const float> hyper) const;
  Status StartPast(cudaStream_t stream, Span<const float> hyper);
  // Step 0 of the column now, at which all rows count as current.
  Status Restart(cudaStream_t stream);
  void Advance();

  const RuleInfo& rule_;
  const std::vector<int> decay_of_slot_;  // kSlotsDecay: the hyper-parameter of each slot's decay
  DeviceAllocator* memory_;
  StagedUpload upload_;
  int64_t steps_ = 0;

  DeviceColumn<uint32_t> last_current_;
  uint32_t now_ = 0;
  int64_t rows_in_use_ = 0;

  std::unique_ptr<DeviceAdamHistory> history_;  // kMove; none before the first step
  float epsilon_ = 0.0f;                        // of all its steps
  std::vector<float> factors_;                  // kSlotsDecay; none before the first step
  DevicePowers powers_;                         // of the factors
};

// One table's step. `update.past` is set by EnqueueSteps; hyper has passed CheckHyper.
struct DeviceStep {
  DeviceOptimizer* optimizer = nullptr;
  Span<const float> hyper;
  RowUpdate update;
};

// Puts a step of some tables, all of one rule, into the stream: the bits of Optimizer::Apply for each.
// `group` is that of the updates without stored gradients. Where a table's factors of decay or its betas have
// changed, all of its rows catch up before.
Status EnqueueSteps(cudaStream_t stream, DeviceAllocator* scratch, const OccurrenceSegments& group,
                    Span<const DeviceStep> steps);

// Rows of a table that are to be current.
struct DeviceCatchUp {
  const DeviceOptimizer* optimizer = nullptr;
  RowStoreView table;
  RowList rows;  // distinct
};

// Puts the catching up of rows of some tables, all of one rule, into the stream: the bits of
// Optimizer::CatchUp.
Status EnqueueCatchUps(cudaStream_t stream, Span<const DeviceCatchUp> catch_ups);

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_DEVICE_OPTIMIZER_H_
