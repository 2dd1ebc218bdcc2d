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
#include "cc/optimizers/rule_info.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"
#include "cuda/store/device_slabs.h"
#include "cuda/store/row_pieces.h"
#include "cuda/store/row_store_view.h"
#include "cuda/training/device_adam_history.h"
#include "cuda/training/gradient_sums.h"
#include "cuda/training/row_updates.h"

namespace sok {

struct DeviceCatchUp;
struct DeviceStep;

// One optimizer of one table whose rows are on the device: the counterpart of Optimizer
// (cc/cpu/optimizers/optimizer.h) on the CPU, with the same bits if calls come in the same order. The state
// of a row is in its record.
//
// Order of calls: CheckHyper; the store's SetSlots; Reserve; then any number of OnNewRows, EnqueueSteps and
// EnqueueCatchUps. One thread at a time; all work is in the order of one stream, or of streams that wait for
// each other. Each call that has a stream returns ResourceExhausted if memory runs out and Internal if work
// cannot be enqueued on the stream.
class DeviceOptimizer {
 public:
  // Device memory comes from `memory`, which must outlive the result. An unknown name is an InvalidArgument
  // that lists the known ones.
  static StatusOr<std::unique_ptr<DeviceOptimizer>> Make(std::string_view name, DeviceAllocator* memory);

  const RuleInfo& rule() const { return rule_; }
  const std::string& name() const { return rule_.name; }
  // Steps taken since the optimizer was made, including those before a restored checkpoint.
  int64_t steps() const { return steps_; }
  // Changes whenever rows that were current may no longer be; no two optimizers have the same. Rows that were
  // brought up to date at this version are current until it changes.
  int64_t version() const { return version_; }
  Status CheckHyper(Span<const float> hyper) const { return rule_.CheckHyper(hyper); }

  // Makes room for the state that is kept for each of the rows [0, rows).
  Status Reserve(cudaStream_t stream, int64_t rows);
  // Marks new rows, which must be below the last Reserve: row numbers (not references) rows[n] on the device;
  // negative ones are skipped.
  Status OnNewRows(cudaStream_t stream, const int64_t* rows, int64_t n);
  // Says that all rows that were ever in use are below `rows`: passes over the whole table stop there.
  void UseRows(int64_t rows);

  // Whether a step also changes rows that it does not touch. They must then be caught up before they are
  // read.
  bool has_catch_up() const { return rule_.untouched != UntouchedRows::kStay; }

  // Whether a step with these hyper-parameters first catches up all rows.
  bool StartsAnew(Span<const float> hyper) const { return has_past() && !IsPastOf(hyper); }

  // For rules with a catch-up: when each row was last current, in the column's own count of steps, which
  // starts at zero. ColumnStep and StepOf convert from and to steps(). A restored step must be one of
  // past_steps(), or the one before them.
  ColumnView<uint32_t> last_current() const { return last_current_.view(); }
  uint32_t ColumnStep(int64_t step) const;
  int64_t StepOf(uint32_t column_step) const { return steps_ - (now_ - column_step); }

  // See Optimizer; for checkpoints.
  bool can_save_lag() const { return rule_.untouched == UntouchedRows::kMove; }
  PastSteps past_steps() const;
  // All rows then count as current; the caller may write their last steps into last_current().
  Status RestorePastSteps(cudaStream_t stream, const PastSteps& past);
  Status ForgetPastSteps(cudaStream_t stream);
  Status RestoreSteps(cudaStream_t stream, int64_t steps);

  // For kernels that are enqueued on the stream before the next call.
  PastView past() const;

 private:
  friend Status EnqueueSteps(cudaStream_t stream, DeviceAllocator* scratch, const OccurrenceSegments& group,
                             Span<const DeviceStep> steps);
  friend Status EnqueueCatchUps(cudaStream_t stream, Span<const DeviceCatchUp> catch_ups);

  DeviceOptimizer(const RuleInfo& rule, std::vector<int> decay_of_slot, DeviceAllocator* memory)
      : rule_(rule), decay_of_slot_(std::move(decay_of_slot)), memory_(memory), last_current_(memory) {}

  // Whether this object remembers steps that rows may have missed.
  bool has_past() const { return history_ != nullptr || !factors_.empty(); }
  // Prepares the history for a step with these hyper-parameters. If it belongs to different ones, first
  // catches up all rows of `table`.
  Status Prepare(cudaStream_t stream, Span<const float> hyper, const RowStoreView& table);
  bool IsPastOf(Span<const float> hyper) const;
  Status StartPast(cudaStream_t stream, Span<const float> hyper);
  static int64_t NewVersion();
  // Restarts the column's count at step 0, at which all rows count as current.
  Status Restart(cudaStream_t stream);
  void Advance();

  const RuleInfo& rule_;
  const std::vector<int> decay_of_slot_;  // kSlotsDecay: the hyper-parameter of each slot's decay
  DeviceAllocator* memory_;
  StagedUpload upload_;
  int64_t steps_ = 0;
  int64_t version_ = NewVersion();

  DeviceColumn<uint32_t> last_current_;
  uint32_t now_ = 0;
  int64_t rows_in_use_ = 0;

  std::unique_ptr<DeviceAdamHistory> history_;  // kMove; none before the first step
  float epsilon_ = 0.0f;                        // of all its steps
  std::vector<float> factors_;                  // kSlotsDecay; none before the first step
  DevicePowers powers_;                         // of the factors
};

// One table's step. EnqueueSteps sets `update.past` and `update.step`; hyper has passed CheckHyper.
struct DeviceStep {
  DeviceOptimizer* optimizer = nullptr;
  Span<const float> hyper;
  RowUpdate update;
};

// Enqueues a step of some tables, all with the same rule, with the bits of Optimizer::Apply for each. `group`
// belongs to the updates without stored gradients. If a table's decay factors or betas have changed, first
// catches up all of its rows.
Status EnqueueSteps(cudaStream_t stream, DeviceAllocator* scratch, const OccurrenceSegments& group,
                    Span<const DeviceStep> steps);

// Rows of a table to catch up.
struct DeviceCatchUp {
  const DeviceOptimizer* optimizer = nullptr;
  RowStoreView table;
  RowList rows;  // distinct
};

// Enqueues the catch-up of rows of some tables, all with the same rule, with the bits of Optimizer::CatchUp.
Status EnqueueCatchUps(cudaStream_t stream, Span<const DeviceCatchUp> catch_ups);

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_DEVICE_OPTIMIZER_H_
