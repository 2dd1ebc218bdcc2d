#ifndef SOK_CC_OPTIMIZERS_OPTIMIZER_H_
#define SOK_CC_OPTIMIZERS_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/optimizers/row_gradients.h"
#include "cc/optimizers/rule_info.h"
#include "cc/store/row_store.h"

namespace sok {

// Steps that rows may have missed: what a checkpoint needs of them to catch its rows up later.
struct PastSteps {
  float beta1 = 0.0f;
  float beta2 = 0.0f;
  float epsilon = 0.0f;
  int64_t first_step = 0;     // the optimizer's steps() before the first of them
  std::vector<float> alphas;  // the rate of each
};

// One optimizer of one table: its arithmetic and the state that belongs to the table as a whole. What belongs
// to a row lies in the row's record, behind the weights (see RowStore).
//
// Order of calls: CheckHyper; RowStore::SetSlots(Slots(...)); Reserve; then any number of OnNewRow, Apply and
// CatchUp. Not thread-safe: the table's lock guards it. The work inside a call is spread over the executor,
// and its results are the same for every executor.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // What the optimizer states about itself.
  const RuleInfo& rule() const { return rule_; }
  // The name that MakeOptimizer knows it by.
  const std::string& name() const { return rule_.name; }
  // Steps taken since the optimizer was made, those before a restored checkpoint included.
  int64_t steps() const { return steps_; }

  // InvalidArgument unless `hyper` holds the rule's hyper-parameters in their order, all finite and in range;
  // the message names the hyper-parameter and the value.
  Status CheckHyper(Span<const float> hyper) const { return rule_.CheckHyper(hyper); }

  // Their names, in the order in which `hyper` holds their values.
  std::vector<std::string> hyper_parameters() const;

  // The slots of a row of `dim` weights, in the order in which they follow the weights, and their names. What
  // new rows' slots are filled with may come from `hyper`, which must have passed CheckHyper.
  std::vector<SlotSpec> Slots(int64_t dim, Span<const float> hyper) const;
  std::vector<std::string> slot_names() const;

  // Makes room for the state that is kept for each of the rows [0, rows).
  virtual Status Reserve(int64_t rows);
  // A row has been handed out: its weights and slots are those of a row at the current step. Reserve(row + 1)
  // comes before.
  virtual void OnNewRow(int64_t row);

  // One step, with the gradients of `rows`, store->dim() floats each. Rows are distinct and below
  // store->rows(); there may be none, which is a step too. A bad `hyper` is an InvalidArgument as of
  // CheckHyper, and then nothing has changed.
  virtual Status Apply(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
                       const RowGradients& gradients, RowStore* store) = 0;

  // Whether rows that a step does not touch change nevertheless. The change is then made when the row is next
  // part of an Apply or a CatchUp, and CatchUp must come before the row is read.
  virtual bool has_catch_up() const { return false; }
  // Makes weights and slots of `rows` (distinct) those of the current step. Calling it at any time, any
  // number of times, changes later results by rounding only.
  virtual void CatchUp(Executor& executor, Span<const int64_t> rows, RowStore* store);

  // Whether rows that are not caught up can be written too, with the steps that they may have missed.
  virtual bool can_save_lag() const { return false; }
  // Those steps; none of them where all rows are current.
  virtual PastSteps past_steps() const { return PastSteps(); }
  // The value of steps() at which a row was last current.
  virtual int64_t last_current(int64_t /*row*/) const { return steps_; }
  // Takes over the steps that rows of a checkpoint may have missed, the last of them steps() of now; follows
  // RestoreState. InvalidArgument where they cannot be those of this optimizer, and then nothing has changed.
  virtual Status RestorePastSteps(const PastSteps& past);
  // Says of a row of such a checkpoint when it was last current: at first_step or later.
  virtual void SetLastCurrent(int64_t /*row*/, int64_t /*step*/) {}
  // For rows that were all caught up: what this optimizer keeps about past steps serves none of them, and
  // goes. Training then continues as it does from a checkpoint of these rows, bit for bit.
  void ForgetPastSteps() { ForgetHistory(); }

  // The table-wide state for a checkpoint that holds rows which were all caught up: format version, name,
  // step count and a checksum, little-endian, under 64 bytes. What an optimizer keeps about past steps serves
  // only rows that have missed them, so it is not part of the state.
  std::string SerializeState() const;
  // Takes over such a state. All rows count as current afterwards; load their weights and slots as a
  // checkpoint has them. DataLoss for damaged bytes, InvalidArgument for another optimizer's state; the
  // optimizer is unchanged then.
  Status RestoreState(std::string_view state);

 protected:
  explicit Optimizer(const RuleInfo& rule) : rule_(rule) {}

  // Forgets past steps: every row's weights and slots are now those of the current step.
  virtual void ForgetHistory() {}
  void CountStep() { ++steps_; }

 private:
  const RuleInfo& rule_;
  int64_t steps_ = 0;
};

// All rules, in the order of rules.h. docs/optimizers.md has them in a table.
std::vector<const RuleInfo*> KnownRules();

// A new optimizer by the name of its rule. An unknown name is an InvalidArgument that lists the known ones.
StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(std::string_view name);

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_OPTIMIZER_H_
