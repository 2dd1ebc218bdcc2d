#ifndef SOK_CC_CPU_OPTIMIZERS_OPTIMIZER_H_
#define SOK_CC_CPU_OPTIMIZERS_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/store/row_store.h"
#include "cc/optimizers/rule_info.h"

namespace sok {

// The gradients of the rows that a step trains, in the order of the rows. The step reads them block by block,
// each just before use. So a block can be summed on demand, while it stays in the cache, and the gradients of
// all rows need not be in memory at once.
class RowGradients {
 public:
  // The largest block, in floats, that is computed on demand. Gradients of longer rows must be in memory.
  static constexpr int64_t kBlockFloats = 4096;

  virtual ~RowGradients() = default;

  // The gradients of rows [begin, end), row-major. They are stored gradients, or computed into `scratch`,
  // which has room for the block. Thread-safe for different rows.
  virtual const float* Block(int64_t begin, int64_t end, float* scratch) const = 0;

  // The costs of the gradients, if they differ between rows: rows [0, i) cost offsets()[i] - offsets()[0].
  // Otherwise empty.
  virtual Span<const int64_t> offsets() const { return {}; }
};

// Gradients in memory: that of row i is at grads + i * dim.
class StoredRowGradients final : public RowGradients {
 public:
  StoredRowGradients(const float* grads, int64_t dim) : grads_(grads), dim_(dim) {}
  const float* Block(int64_t begin, int64_t /*end*/, float* /*scratch*/) const override {
    return grads_ + begin * dim_;
  }

 private:
  const float* grads_;
  int64_t dim_;
};

// The optimizer of one table: its arithmetic and the state of the table as a whole. The state of a row is in
// the slots of its record, after the weights (see RowStore).
//
// Order of calls: CheckHyper; RowStore::SetSlots(Slots(...)) and Reserve, in either order; then any number of
// OnNewRow, Apply and CatchUp. Not thread-safe: the table's lock guards it. A call spreads its work over the
// executor; its results are the same for every executor.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  const RuleInfo& rule() const { return rule_; }
  // The name of its rule.
  const std::string& name() const { return rule_.name; }
  // Steps taken since the optimizer was made, including those before a restored checkpoint.
  int64_t steps() const { return steps_; }

  // InvalidArgument unless `hyper` holds the rule's hyper-parameters in their order, all finite and in range.
  // The message names the hyper-parameter and the value.
  Status CheckHyper(Span<const float> hyper) const { return rule_.CheckHyper(hyper); }

  // Those of its rule.
  std::vector<std::string> hyper_parameters() const { return rule_.hyper_parameters(); }
  std::vector<SlotSpec> Slots(int64_t dim, Span<const float> hyper) const { return rule_.Slots(dim, hyper); }
  std::vector<std::string> slot_names() const { return rule_.slot_names(); }

  // Makes room for the optimizer's own data on each of the rows [0, rows). ResourceExhausted if memory runs
  // out.
  virtual Status Reserve(int64_t /*rows*/) { return OkStatus(); }
  // Marks a row that is new, or has a new key: its weights and slots count as current. Needs Reserve(row +
  // 1).
  virtual void OnNewRow(int64_t /*row*/) {}

  // Takes one step with the gradients of `rows`, store->dim() floats each. Rows are distinct and below
  // store->rows(). A step without rows counts as a step. InvalidArgument for a bad `hyper`, as from
  // CheckHyper, and ResourceExhausted as from Reserve(store->rows()); then nothing has changed.
  virtual Status Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
                       const RowGradients& gradients, RowStore* store) = 0;

  // Whether a step also changes rows without a gradient. Such a change is postponed until the row's next
  // Apply or CatchUp, so CatchUp must be called before the row is read.
  virtual bool has_catch_up() const { return false; }
  // Whether an Apply with these hyper-parameters first catches up all rows of the store.
  virtual bool StartsAnew(Span<const float> /*hyper*/) const { return false; }
  // Brings the weights and slots of `rows` (distinct) to the current step. A call at any time, any number of
  // times, changes later results by rounding only.
  virtual void CatchUp(Executor& /*executor*/, Span<const int64_t> /*rows*/, RowStore* /*store*/) {}

  // Whether a checkpoint can hold rows that are not caught up, together with the steps that they may have
  // missed.
  virtual bool can_save_lag() const { return false; }
  // The steps that rows may have missed; no steps after ForgetPastSteps or RestoreSteps.
  virtual PastSteps past_steps() const { return PastSteps(); }
  // The value of steps() at which a row was last current.
  virtual int64_t last_current(int64_t /*row*/) const { return steps_; }
  // Restores the steps that rows of a checkpoint may have missed; the last of them is step steps(). Call it
  // after RestoreSteps. InvalidArgument if they do not fit this optimizer; then nothing has changed.
  virtual Status RestorePastSteps(const PastSteps& past);
  // Sets the step, at least first_step, at which a row of such a checkpoint was last current.
  virtual void SetLastCurrent(int64_t /*row*/, int64_t /*step*/) {}
  // Drops the history of past steps. All rows must be caught up. Training then continues bit for bit as from
  // a checkpoint of these rows.
  virtual void ForgetPastSteps() {}

  // Sets steps() to that of a checkpoint. All rows then count as current; load their weights and slots from
  // it.
  void RestoreSteps(int64_t steps) {
    ForgetPastSteps();
    steps_ = steps;
  }

 protected:
  explicit Optimizer(const RuleInfo& rule) : rule_(rule) {}

  void CountStep() { ++steps_; }

 private:
  const RuleInfo& rule_;
  int64_t steps_ = 0;
};

// A new optimizer by the name of its rule. InvalidArgument for an unknown name; the message lists the known
// names.
StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(std::string_view name);

}  // namespace sok

#endif  // SOK_CC_CPU_OPTIMIZERS_OPTIMIZER_H_
