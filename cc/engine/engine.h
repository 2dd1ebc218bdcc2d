// The seam between the ops and a device: all that an op asks of the engine that made its tables.
#ifndef SOK_CC_ENGINE_ENGINE_H_
#define SOK_CC_ENGINE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine_context.h"
#include "cc/engine/engine_object.h"
#include "cc/engine/engine_table.h"
#include "cc/group/lookup_input.h"
#include "cc/group/output_rows.h"
#include "cc/sharded/exchange_mode.h"
#include "cc/sharded/gradient_format.h"
#include "cc/sharded/message.h"

namespace sok {

// What a lookup leaves on the rank that owns the rows: which rows it has read and, in training, trains.
class TrainedGroup : public EngineObject {
 public:
  using EngineObject::EngineObject;

  // Distinct rows of table `t` of the group that get gradients. 0 without training.
  virtual int64_t trained_rows(int t) const = 0;

  // Writes references to these rows, in the order of their gradients: references[trained_rows(t)], in the
  // engine's memory. They are what EngineTable::ApplyGradients takes.
  virtual Status WriteReferences(const EngineContext& context, int t, int64_t* references) const = 0;
};

// What the forward pass of a group on one rank leaves for its backward pass. A later step may use it again,
// which keeps its memory; on a device, a step on the same stream.
class GroupPlan : public TrainedGroup {
 public:
  using TrainedGroup::TrainedGroup;
};

// What a group over ranks leaves on the rank that asks, between its exchanges. For one step.
class RoutedGroup : public EngineObject {
 public:
  using EngineObject::EngineObject;
};

// What a group over ranks leaves on a rank that owns rows, for the rows that all ranks asked it for. For one
// step.
class ServedGroup : public TrainedGroup {
 public:
  using TrainedGroup::TrainedGroup;
};

// Working memory that a caller keeps from one call to the next. One call at a time; on a device, the calls
// are on one stream.
class EngineScratch : public EngineObject {
 public:
  using EngineObject::EngineObject;
};

// A group of lookups, and what they look up in one step.
struct GroupBatch {
  Span<EngineTable* const> tables;  // distinct, of one engine
  Span<const LookupSpec> specs;
  Span<const LookupInput> inputs;  // inputs[l] belongs to specs[l]
  // Ids that are not there get rows, and rows get gradients. Otherwise unseen ids read as their initial
  // values and stay out.
  bool training = true;
};

// One table's step in a fused update.
struct EngineStep {
  int position = 0;  // of the table in its group
  EngineTable* table = nullptr;
  Span<const float> hyper;
};

// A device's implementation of tables, and of lookups in groups of them. One object serves the process.
//
// Ids, bags, weights, outputs, gradients, references and the words of messages are in the engine's memory:
// the host's for the CPU, a device's for CUDA. Sizes, hyper-parameters, names and statuses are on the host.
// All objects of a call were made by this engine.
//
// Thread-safe. Tables are locked inside, those of a group in one global order. After an error outputs hold
// nothing of use, and rows that were in the tables are as they were. Nothing is thrown: ResourceExhausted
// where memory does not suffice. Results do not depend on the context's executor.
//
// An engine has to offer lookups of one rank and their gradients; the other calls return Unimplemented where
// it does not override them.
class Engine {
 public:
  virtual ~Engine() = default;

  // In lower case, as users write it. An engine named as a type of TensorFlow's devices, "cpu" or "gpu",
  // makes the tables that are placed there.
  virtual const std::string& name() const = 0;

  // Makes a table. InvalidArgument, which names the variable and the value, where the options are wrong.
  virtual StatusOr<std::shared_ptr<EngineTable>> MakeTable(const EngineContext& context,
                                                           TableOptions options) = 0;

  virtual std::unique_ptr<GroupPlan> NewPlan() = 0;
  virtual std::unique_ptr<EngineScratch> NewScratch() = 0;
  // Null where the engine does not implement Route and Serve.
  virtual std::unique_ptr<RoutedGroup> NewRoutedGroup();
  virtual std::unique_ptr<ServedGroup> NewServedGroup();

  // --- A group on one rank ---

  // Looks a whole group up: builds bags, merges duplicate ids per table, finds their rows (in training
  // inserts those that are new) and writes outputs[l], that of lookup l. InvalidArgument of the first lookup
  // whose indices, row splits, weights or ids are wrong.
  virtual Status Lookup(const EngineContext& context, const GroupBatch& batch, GroupPlan* plan,
                        Span<const OutputRows> outputs, EngineScratch* scratch) = 0;

  // Lookup in two calls, for callers whose ids arrive before the tables are in the state that the lookup must
  // see. Merge reads no row; of the tables it uses names and lengths of rows. The inputs need not stay.
  virtual Status Merge(const EngineContext& context, const GroupBatch& batch, GroupPlan* plan,
                       EngineScratch* scratch);
  // Does the rest, once for each Merge.
  virtual Status Read(const EngineContext& context, Span<EngineTable* const> tables, GroupPlan* plan,
                      Span<const OutputRows> outputs, EngineScratch* scratch);

  // grads_out[t]: [plan.trained_rows(t), dim of table t], each row the sum over the occurrences of its id, in
  // order; null where not wanted. gradients[l] belongs to lookup l. The plan's lookup was training.
  virtual Status Backward(const EngineContext& context, const GroupPlan& plan,
                          Span<const GradientRows> gradients, Span<float* const> grads_out,
                          EngineScratch* scratch) = 0;

  // weight_grads[l]: the gradient of lookup l's weights, one for each of its ids in the order given, zeros
  // for ids that are in no bag; null where not wanted, as for lookups without bags. Reads rows as they are
  // now, so it comes before the update. FailedPrecondition where a row was evicted since the lookup.
  virtual Status WeightGradients(const EngineContext& context, Span<EngineTable* const> tables,
                                 const GroupPlan& plan, Span<const GradientRows> gradients,
                                 Span<float* const> weight_grads);

  // Backward and ApplyGradients of some tables in one pass: the same bits, and sums that never lie in memory.
  // All steps are checked before the first is taken.
  virtual Status Train(const EngineContext& context, const GroupPlan& plan,
                       Span<const GradientRows> gradients, std::string_view optimizer,
                       Span<const EngineStep> steps, EngineScratch* scratch);

  // --- A group over ranks: three exchanges, of which cc/sharded/message.h says what messages are ---

  // On the rank that asks: merges duplicates, sorts ids by owner, and writes the messages of exchange 1. The
  // rank is that of batch.tables[0]. Where `status`, what the caller found out about the inputs, or the
  // routing itself is an error, the messages say so: every rank gets it as the outcome of Combine. Returns an
  // error only where no message could be written. A table of kSums has one lookup in the group, pooled,
  // without weights, that keeps its bags.
  virtual Status Route(const EngineContext& context, const GroupBatch& batch, Span<const ExchangeMode> modes,
                       const Status& status, RoutedGroup* routed, EngineScratch* scratch,
                       AllocateWords allocate);

  // On the owners: merges what several ranks ask for, finds rows (inserts those that are new to ranks in
  // training), and writes the messages of exchange 2. An error of any rank, ranks whose tables differ, and an
  // error of this rank's tables are the answer to all ranks; then nothing is inserted, except in tables that
  // had no error while another had one. Returns an error only where no answer could be written.
  virtual Status Serve(const EngineContext& context, Span<EngineTable* const> tables,
                       Span<const ExchangeMode> modes, const Inbox& requests, ServedGroup* served,
                       EngineScratch* scratch, AllocateWords allocate);

  // On the rank that asked: writes every lookup's output from the rows or sums that arrived. Where any rank
  // had an error, every rank returns that error. `outputs` may be empty where this rank's Route had one.
  virtual Status Combine(const EngineContext& context, Span<EngineTable* const> tables,
                         const RoutedGroup& routed, const Inbox& replies, Span<const OutputRows> outputs);

  // On the rank that asked: sums the gradients of each distinct id or of each bag, and writes the messages of
  // exchange 3. `replies` are those that Combine has accepted. A group that was not training sends none.
  virtual Status Reduce(const EngineContext& context, const RoutedGroup& routed,
                        Span<const GradientRows> gradients, const Inbox& replies, GradientFormat format,
                        AllocateWords allocate);

  // WeightGradients on the rank that asked, from the rows in `replies`. Of lookups in tables of kRows.
  virtual Status RoutedWeightGradients(const EngineContext& context, const RoutedGroup& routed,
                                       const Inbox& replies, Span<const GradientRows> gradients,
                                       Span<float* const> weight_grads);

  // On the owners: grads_out[t], [served.trained_rows(t), dim of table t], sums over the ranks' gradients, in
  // the order of the ranks; null where not wanted. FailedPrecondition where a rank's gradients belong to
  // another step, whose sessions do not run the same steps as this one's.
  virtual Status Sum(const EngineContext& context, const ServedGroup& served, const Inbox& messages,
                     Span<float* const> grads_out, EngineScratch* scratch);

  // Sum and ApplyGradients of some tables in one pass, as Train, with sums divided by `divisor`, at least 1.
  virtual Status SumAndTrain(const EngineContext& context, const ServedGroup& served, const Inbox& messages,
                             float divisor, std::string_view optimizer, Span<const EngineStep> steps,
                             EngineScratch* scratch);

 protected:
  // What a call returns that the engine does not implement; `call` says what it does. `tables` are those of
  // the call, the first of which the error names.
  Status NotOffered(const char* call, Span<EngineTable* const> tables = {}) const;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_ENGINE_H_
