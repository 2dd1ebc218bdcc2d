// The interface between the ops and a device's implementation of tables and lookups.
#ifndef SOK_CC_ENGINE_ENGINE_H_
#define SOK_CC_ENGINE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine_table.h"
#include "cc/lookup/lookup_input.h"
#include "cc/messages/message.h"

namespace sok {

// The state of a lookup on the rank that owns the rows: the rows that it read and, in training, will train.
class LookedUpRows : public EngineObject {
 public:
  using EngineObject::EngineObject;

  // The number of distinct rows of table `t` of the group that get gradients. 0 without training.
  virtual int64_t trained_rows(int t) const = 0;

  // Writes references to these rows, for EngineTable::ApplyGradients, in the order of their gradients:
  // references[trained_rows(t)], in the engine's memory.
  virtual Status WriteReferences(const EngineContext& context, int t, int64_t* references) const = 0;
};

// The state between the forward and the backward pass of a group on one rank. A later step may reuse the
// object and its memory; on a device, the later step must use the same stream.
class GroupPlan : public LookedUpRows {
 public:
  using LookedUpRows::LookedUpRows;
};

// The state of a group over ranks on the asking rank, between the exchanges of one step.
class RoutedGroup : public EngineObject {
 public:
  using EngineObject::EngineObject;
};

// The state of a group over ranks on an owning rank, for one step: the rows that all ranks asked it for.
class ServedGroup : public LookedUpRows {
 public:
  using LookedUpRows::LookedUpRows;
};

// Working memory that a caller keeps between calls. One call at a time; on a device, all calls on one stream.
class EngineScratch : public EngineObject {
 public:
  using EngineObject::EngineObject;
};

// Memory of the host from which a device copies by itself. One call at a time. The destructor waits for the
// last copy.
class HostStage : public EngineObject {
 public:
  using EngineObject::EngineObject;

  // At least `bytes` > 0 of any content, until the next call. Waits for the last Send. ResourceExhausted if
  // memory runs out.
  virtual StatusOr<char*> Allocate(int64_t bytes) = 0;

  // Copies the first `bytes` > 0 to `device`, in the order of the context's stream, and does not wait.
  virtual Status Send(const EngineContext& context, int64_t bytes, void* device) = 0;
};

// A group of lookups and its inputs in one step.
struct GroupBatch {
  Span<EngineTable* const> tables;  // distinct, of one engine
  Span<const LookupSpec> specs;
  Span<const LookupInput> inputs;  // inputs[l] belongs to specs[l]
  // In training, ids that the table admits and that have no row get one, and rows get gradients. Otherwise
  // nothing is inserted. An id that stays without a row reads as its initial values, or as the default value
  // of a table whose admission filters ids.
  bool training = true;
};

// One table's step in a fused update.
struct EngineStep {
  int position = 0;  // of the table in its group
  EngineTable* table = nullptr;
  Span<const float> hyper;
};

// A device's implementation of tables, and of lookups in groups of tables. One object serves the process.
//
// Ids, bags, weights, outputs, gradients, references and the words of messages are in the engine's memory:
// the host's for the CPU, a device's for CUDA. Sizes, hyper-parameters, names and statuses are on the host.
// All objects passed to a call were made by this engine.
//
// Thread-safe: calls lock the tables, those of a group in one global order. After an error the contents of
// outputs are undefined. A training lookup of several tables may then have given some of them new rows, and
// evicted rows for these; all other rows are unchanged. Nothing is thrown; if memory runs out, calls return
// ResourceExhausted. Results do not depend on the context's executor.
//
// An engine must implement lookups on one rank and their gradients. The other calls return Unimplemented
// unless the engine overrides them.
class Engine {
 public:
  virtual ~Engine() = default;

  // The name for users, in lower case. An engine with the name of a TensorFlow device type, "cpu" or "gpu",
  // makes the tables that are placed on such devices.
  virtual const std::string& name() const = 0;

  // Makes a table. InvalidArgument for wrong options; the message names the variable and the value.
  virtual StatusOr<std::shared_ptr<EngineTable>> MakeTable(const EngineContext& context,
                                                           TableOptions options) = 0;

  virtual std::unique_ptr<GroupPlan> NewPlan() = 0;
  virtual std::unique_ptr<EngineScratch> NewScratch() = 0;
  // Null if the engine does not implement Route and Serve.
  virtual std::unique_ptr<RoutedGroup> NewRoutedGroup();
  virtual std::unique_ptr<ServedGroup> NewServedGroup();

  // Null if the engine's memory is the host's.
  virtual std::unique_ptr<HostStage> NewHostStage() { return nullptr; }

  // --- A group on one rank ---

  // Looks up a whole group: builds bags, merges duplicate ids per table, finds their rows (in training
  // inserts new ones) and writes outputs[l] for each lookup l. InvalidArgument for wrong indices, row splits,
  // weights or ids. Of several wrong indices, row splits and weights, the error is that of the first lookup;
  // errors of tables, such as a wrong id, come after these.
  virtual Status Lookup(const EngineContext& context, const GroupBatch& batch, GroupPlan* plan,
                        Span<const OutputRows> outputs, EngineScratch* scratch) = 0;

  // Lookup in two calls, for callers whose ids arrive before the tables are in the state that the lookup must
  // see. Merge reads no rows, only the tables' names and dims. The inputs may be freed after it.
  virtual Status Merge(const EngineContext& context, const GroupBatch& batch, GroupPlan* plan,
                       EngineScratch* scratch);
  // The rest of the lookup. One call for each Merge.
  virtual Status Read(const EngineContext& context, Span<EngineTable* const> tables, GroupPlan* plan,
                      Span<const OutputRows> outputs, EngineScratch* scratch);

  // grads_out[t]: [plan.trained_rows(t), dim of table t]. Each row is the sum over the occurrences of its id,
  // in order and in pieces of kSegmentPiece. Null for tables whose gradients are not needed. gradients[l]
  // belongs to lookup l. The plan's lookup must have been a training lookup.
  virtual Status Backward(const EngineContext& context, const GroupPlan& plan,
                          Span<const GradientRows> gradients, Span<float* const> grads_out,
                          EngineScratch* scratch) = 0;

  // weight_grads[l]: the gradient of lookup l's weights, one number for each of its ids in the order of the
  // input, zero for ids in no bag. Null if not needed, and for lookups without bags. Reads the current rows,
  // so call it before the update. FailedPrecondition if a row was evicted since the lookup.
  virtual Status WeightGradients(const EngineContext& context, Span<EngineTable* const> tables,
                                 const GroupPlan& plan, Span<const GradientRows> gradients,
                                 Span<float* const> weight_grads);

  // Backward and ApplyGradients of some tables in one pass, with the same bits, but without storing the sums
  // of gradients. Checks all steps before it takes the first.
  virtual Status Train(const EngineContext& context, const GroupPlan& plan,
                       Span<const GradientRows> gradients, std::string_view optimizer,
                       Span<const EngineStep> steps, EngineScratch* scratch);

  // --- A group over ranks: three exchanges of messages (cc/messages/message.h) ---
  //
  // The askers are the ranks themselves, all in one exchange, or a process that is no rank, whose tables have
  // TableOptions::rank kNoRank. The latter alone sends one message to each rank, and each rank serves it by
  // itself, in any order with other such processes. Then "all ranks" and "every rank" below are this process
  // and the rank that serves it.

  // On the asking rank, which is that of batch.tables[0]: merges duplicates, sorts ids by owner, and writes
  // the messages of exchange 1. `status` is the result of the caller's checks of its inputs. If it, or the
  // routing, is an error, the messages carry the error and Combine returns it on every rank. Route itself
  // returns an error only if it could not write the messages. A kSums table has exactly one lookup in the
  // group, pooled, without weights, that keeps its bags; otherwise the error is that of CheckSummedTables.
  virtual Status Route(const EngineContext& context, const GroupBatch& batch, Span<const ExchangeMode> modes,
                       const Status& status, RoutedGroup* routed, EngineScratch* scratch,
                       AllocateWords allocate);

  // On the owning rank: merges the ids that several ranks ask for, finds rows (inserts new ones for ranks in
  // training), and writes the messages of exchange 2. An error of any rank, ranks whose tables differ, and an
  // error of this rank's tables are sent to all ranks. Then nothing is inserted, except that after an error
  // of one table other tables may have new rows. Returns an error only if it could not write the messages.
  virtual Status Serve(const EngineContext& context, Span<EngineTable* const> tables,
                       Span<const ExchangeMode> modes, const Inbox& requests, ServedGroup* served,
                       EngineScratch* scratch, AllocateWords allocate);

  // On the asking rank: writes every lookup's output from the rows or sums in `replies`. If any rank had an
  // error, every rank returns that error. `outputs` may be empty if this rank's Route had an error.
  virtual Status Combine(const EngineContext& context, Span<EngineTable* const> tables,
                         const RoutedGroup& routed, const Inbox& replies, Span<const OutputRows> outputs);

  // On the asking rank: sums the gradients of each distinct id (kRows) or takes those of each bag (kSums),
  // and writes the messages of exchange 3. `replies` are those that Combine accepted. A group that is not
  // training sends no gradients.
  virtual Status Reduce(const EngineContext& context, const RoutedGroup& routed,
                        Span<const GradientRows> gradients, const Inbox& replies, GradientFormat format,
                        AllocateWords allocate);

  // WeightGradients on the asking rank, from the rows in `replies`, for lookups in kRows tables.
  virtual Status RoutedWeightGradients(const EngineContext& context, const RoutedGroup& routed,
                                       const Inbox& replies, Span<const GradientRows> gradients,
                                       Span<float* const> weight_grads);

  // On the owning rank: grads_out[t], [served.trained_rows(t), dim of table t], are the sums of the ranks'
  // gradients, in the order of the ranks. Null for tables whose gradients are not needed. FailedPrecondition
  // if a rank's gradients belong to another step: then the ranks' sessions do not run the same steps.
  virtual Status Sum(const EngineContext& context, const ServedGroup& served, const Inbox& messages,
                     Span<float* const> grads_out, EngineScratch* scratch);

  // Sum and ApplyGradients of some tables in one pass, as in Train. Divides the sums by `divisor` >= 1.
  virtual Status SumAndTrain(const EngineContext& context, const ServedGroup& served, const Inbox& messages,
                             float divisor, std::string_view optimizer, Span<const EngineStep> steps,
                             EngineScratch* scratch);

  // quotients[i] = values[i] / divisor for i < n, rounded once: averages gradients over ranks as SumAndTrain
  // does. `quotients` may be `values`.
  virtual Status Divide(const EngineContext& context, const float* values, int64_t n, float divisor,
                        float* quotients);

 protected:
  // The error of a call that the engine does not implement. `call` describes it, as in "does not implement
  // fused updates". The error names the first of `tables`.
  Status NotOffered(const char* call, Span<EngineTable* const> tables = {}) const;
};

// What Engine::Route requires of the kSums tables of a group: exactly one lookup each, pooled, without
// weights, that keeps its bags. InvalidArgument names the first table that has another number or kind of
// lookups. modes[t] belongs to batch.tables[t].
Status CheckSummedTables(const GroupBatch& batch, Span<const ExchangeMode> modes);

}  // namespace sok

#endif  // SOK_CC_ENGINE_ENGINE_H_
