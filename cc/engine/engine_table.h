#ifndef SOK_CC_ENGINE_ENGINE_TABLE_H_
#define SOK_CC_ENGINE_ENGINE_TABLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/held_table.h"
#include "cc/table/table_options.h"

namespace sok {

// Memory of a device, in the order of a stream: later work on the stream may use it after Allocate, and
// earlier work may use it before Free. Thread-safe.
class StreamMemory {
 public:
  virtual ~StreamMemory() = default;
  // `bytes` > 0, aligned to 256 bytes. ResourceExhausted if memory runs out.
  virtual StatusOr<void*> Allocate(void* stream, int64_t bytes) = 0;
  virtual void Free(void* stream, void* memory) = 0;
};

// Where one call into an engine runs. Valid during the call.
struct EngineContext {
  // The host's threads.
  Executor& executor;
  // The stream of a device's engine (for CUDA a cudaStream_t); null for the CPU. The engine does all of its
  // work in the order of the stream, so results are ready for later work on the stream.
  void* stream = nullptr;
  // For a device's engine: where it allocates memory that only this call needs. Null: the engine's own.
  StreamMemory* memory = nullptr;
  // The same for memory that the engine keeps: of tables, and from step to step. It comes with one stream
  // only, and lives as long as the engine. Null: the engine's own.
  StreamMemory* kept_memory = nullptr;
};

// Statistics of the training lookups in a table since it was made, on one rank. Over several ranks `ids`
// counts the ids that this rank looked up and `bytes_sent` what it sent to others; the other numbers count
// the ids that it owns, whichever rank looked them up, and those of replicas on rank 0. So the sums over
// ranks equal the numbers of one process with all batches.
//
// Processes that are no ranks come and go, so the ranks count for them: the first rank the ids, each rank
// what it sent and got.
//
// Thread-safe. Each number is exact, but they are not read at one moment.
struct LookupCounts {
  std::atomic<int64_t> ids{0};           // looked up, with duplicates
  std::atomic<int64_t> distinct_ids{0};  // distinct within each group lookup
  std::atomic<int64_t> admitted_ids{0};  // ids that got a row
  std::atomic<int64_t> filtered_ids{0};  // distinct_ids without a row because of admission
  std::atomic<int64_t> bytes_sent{0};    // requests, rows and gradients, without the messages' headers

  static void Add(std::atomic<int64_t>& count, int64_t amount) {
    count.fetch_add(amount, std::memory_order_relaxed);
  }
};

class Engine;

// An object that an engine made: a table, a plan, working memory. Only that engine can use it, so callers
// check engine() before they pass it to an engine.
class EngineObject {
 public:
  explicit EngineObject(Engine* engine) : engine_(engine) {}
  EngineObject(const EngineObject&) = delete;
  EngineObject& operator=(const EngineObject&) = delete;
  virtual ~EngineObject() = default;

  Engine& engine() const { return *engine_; }

 private:
  Engine* const engine_;
};

// A consistent snapshot of a table's statistics.
struct TableDescription {
  int64_t rows = 0;       // in use on this rank
  int64_t bytes = 0;      // of rows, slots, other data per row, index, and admission's counts
  int64_t steps = 0;      // optimizer steps taken, or the global step from SetGlobalStep
  std::string optimizer;  // "" before the first step
  TierCounts tiers = {};  // zeros if all rows are in memory
};

// The rows of one embedding variable that this rank owns, in the memory of one engine.
//
// Arrays of keys, references, values and gradients are in the engine's memory; hyper-parameters and results
// are on the host. Thread-safe: calls of several threads run one after another. After an error the table is
// unchanged, unless a call says otherwise. Every error names the variable. Calls that an engine does not
// implement return Unimplemented.
class EngineTable : public EngineObject {
 public:
  using EngineObject::EngineObject;

  virtual const TableOptions& options() const = 0;
  virtual TableDescription Describe() const = 0;
  // Statistics of training lookups.
  virtual const LookupCounts& lookup_counts() const = 0;

  // One step of `optimizer` (a name that MakeOptimizer knows). grads[i, :] is the gradient of the row of
  // references[i], which LookedUpRows::WriteReferences wrote. Rows may repeat unless `distinct`: the
  // gradients of a row are summed first, in the order given. Gradients of rows that were evicted since the
  // lookup are dropped. A step without rows counts as a step. The first step attaches the optimizer; another
  // optimizer later is FailedPrecondition. A row that the table never had is InvalidArgument. If memory runs
  // out, the optimizer may be attached without a step.
  virtual Status ApplyGradients(const EngineContext& context, std::string_view optimizer,
                                Span<const float> hyper, Span<const int64_t> references, const float* grads,
                                bool distinct) = 0;

  // Sets the weights of keys[i] to values[i, :], and inserts absent keys. Skips keys that other ranks own.
  // InvalidArgument for a key that occurs twice; ResourceExhausted if the capacity or memory is exhausted.
  virtual Status Assign(const EngineContext& context, Span<const int64_t> keys, const float* values) = 0;

  // Erases keys, also those that wait for admission; skips absent keys. *erased = the number of rows erased.
  // InvalidArgument without hashing.
  virtual Status Erase(const EngineContext& context, Span<const int64_t> keys, int64_t* erased);

  // Sets the training program's global step, at least 0, of the next ApplyGradients: see
  // Table::SetGlobalStep.
  virtual Status SetGlobalStep(int64_t step);

  // Locks the table for checkpoints, exports and raw files: waits until no other call works on it, and blocks
  // all other calls until the result is destroyed. The table and what `context` refers to must outlive the
  // result. The thread that holds it must not call the table itself.
  virtual StatusOr<std::unique_ptr<HeldTable>> Hold(const EngineContext& context);

 protected:
  // The error of a call that the engine does not implement. `call` describes it.
  Status NotOffered(const char* call) const;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_ENGINE_TABLE_H_
