#ifndef SOK_CC_ENGINE_ENGINE_TABLE_H_
#define SOK_CC_ENGINE_ENGINE_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine_context.h"
#include "cc/engine/engine_object.h"
#include "cc/engine/held_table.h"
#include "cc/table/lookup_counts.h"
#include "cc/table/table_options.h"

namespace sok {

// A table's state in numbers, all of one moment.
struct TableDescription {
  int64_t rows = 0;       // in use on this rank
  int64_t bytes = 0;      // of rows, slots, index, and of ids that wait for admission
  int64_t steps = 0;      // optimizer steps taken, or the global step that SetGlobalStep has told
  std::string optimizer;  // "" before the first step
};

// The rows of one embedding variable that this rank owns, in the memory of one engine.
//
// Arrays of keys, references, values and gradients are in the engine's memory; hyper-parameters and results
// are on the host. Thread-safe: calls of several threads follow one another. After an error the table is as
// it was, unless a call says otherwise. Every error names the variable. Calls that an engine does not
// implement return Unimplemented.
class EngineTable : public EngineObject {
 public:
  using EngineObject::EngineObject;

  virtual const TableOptions& options() const = 0;
  virtual TableDescription Describe() const = 0;
  // What training lookups have done with the table.
  virtual const LookupCounts& lookup_counts() const = 0;

  // One step of `optimizer` (a name that MakeOptimizer knows) with gradients grads[i, :] of the row that
  // references[i] stands for, as TrainedGroup::WriteReferences has written it. Rows may repeat unless
  // `distinct`: the gradients of one row are summed first, in the order given. Gradients of rows that were
  // evicted since the lookup are dropped. No rows at all is a step too. The first step gives the table its
  // optimizer: another one later is FailedPrecondition. A row that the table never had is InvalidArgument.
  virtual Status ApplyGradients(const EngineContext& context, std::string_view optimizer,
                                Span<const float> hyper, Span<const int64_t> references, const float* grads,
                                bool distinct) = 0;

  // Sets the weights of keys[i] to values[i, :], inserting keys that are not there. Keys of other ranks are
  // passed over. InvalidArgument for a key that stands twice; ResourceExhausted where the capacity or the
  // memory does not suffice.
  virtual Status Assign(const EngineContext& context, Span<const int64_t> keys, const float* values) = 0;

  // Takes keys out, and out of those that wait for admission; those that are not there are passed over.
  // *erased = the rows that went. InvalidArgument without hashing.
  virtual Status Erase(const EngineContext& context, Span<const int64_t> keys, int64_t* erased);

  // Tells the table the training program's global step, at least 0, which is that of the next step: see
  // Table::SetGlobalStep.
  virtual Status SetGlobalStep(int64_t step);

  // Waits until no other call works on the table, and keeps all others out for as long as the result lives:
  // for checkpoints, exports and raw files. The table and what `context` refers to have to outlive it. The
  // thread that has it must not call the table itself.
  virtual StatusOr<std::unique_ptr<HeldTable>> Hold(const EngineContext& context);

 protected:
  // What a call returns that the engine does not implement; `call` says what it does.
  Status NotOffered(const char* call) const;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_ENGINE_TABLE_H_
