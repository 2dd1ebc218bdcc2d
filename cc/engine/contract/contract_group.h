// A group of an engine's tables on one rank, called through the engine interface as an op calls it.
#ifndef SOK_CC_ENGINE_CONTRACT_CONTRACT_GROUP_H_
#define SOK_CC_ENGINE_CONTRACT_CONTRACT_GROUP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cc/engine/contract/contract_batch.h"
#include "cc/engine/contract/engine_case.h"

namespace sok {

// Options of a table whose initial rows are uniform in [-1, 1), with a seed that depends on name and dim.
TableOptions ContractOptions(const std::string& name, int64_t dim, int64_t capacity = 0);

// Gives the table `rows` initial rows of distinct values.
void GiveRows(uint32_t rows, TableOptions* options);

// Values of a batch's outputs or gradients on the host, by lookup: [rows of the output, dim].
using OutputValues = std::vector<std::vector<float>>;
// Rows or gradients of rows on the host, by key.
using ValuesByKey = std::map<int64_t, std::vector<float>>;

class ContractGroup {
 public:
  ContractGroup(const EngineCase& engine, Executor& executor, const std::vector<TableOptions>& options);
  // A group of the same tables, in the same or the reverse order, with a plan and scratch of its own, as of
  // another session.
  ContractGroup(const EngineCase& engine, Executor& executor, const ContractGroup& same_tables,
                bool reverse = false);

  EngineTable& table(size_t t) { return *tables_[t]; }
  const std::vector<EngineTable*>& tables() const { return pointers_; }
  EngineContext context() { return EngineContext{executor_, engine_.memory->stream()}; }
  EngineMemory& memory() { return *engine_.memory; }
  const GroupPlan& plan() const { return *plan_; }
  int64_t dim(const ContractLookup& lookup) const;

  // Looks up the whole batch, and writes outputs().
  Status Lookup(const ContractBatch& batch, bool training = true);
  // The same in two calls.
  Status Merge(const ContractBatch& batch, bool training = true);
  Status Read();
  const OutputValues& outputs() const { return outputs_; }

  // The backward pass of the last lookup: the gradient of every trained row, by table and reference.
  Status Backward(const OutputValues& gradients, std::vector<ValuesByKey>* by_reference);
  // The gradients of all weights, by lookup, in the order of the ids in the bags.
  Status WeightGradients(const OutputValues& gradients, OutputValues* weight_gradients);
  // Backward, and ApplyGradients of every table.
  Status BackwardAndApply(const OutputValues& gradients, const std::string& optimizer,
                          const std::vector<float>& hyper);
  // The fused step of every table.
  Status Train(const OutputValues& gradients, const std::string& optimizer, const std::vector<float>& hyper);

  // The rows of `keys`, read by a lookup without training.
  ValuesByKey Rows(size_t t, const std::vector<int64_t>& keys);
  Status Assign(size_t t, const std::vector<int64_t>& keys, const std::vector<float>& values);
  Status Erase(size_t t, const std::vector<int64_t>& keys, int64_t* erased);

  // Gradients of the batch's outputs: uniform in [-1, 1).
  OutputValues RandomGradients(const ContractBatch& batch, uint32_t seed) const;

 private:
  void MakeOutputs(const ContractBatch& batch);
  void ReadOutputs();
  // Gradients in the engine's memory, one view for each lookup; valid until the next call.
  std::vector<GradientRows> Upload(const OutputValues& gradients);
  struct TableGradients {
    std::vector<EngineArray<int64_t>> references;
    std::vector<EngineArray<float>> values;
  };
  Status SumGradients(const OutputValues& gradients, TableGradients* sums);

  const EngineCase& engine_;
  Executor& executor_;
  std::vector<std::shared_ptr<EngineTable>> tables_;
  std::vector<EngineTable*> pointers_;
  std::unique_ptr<GroupPlan> plan_;
  std::unique_ptr<EngineScratch> scratch_;
  ContractBatch batch_;
  std::unique_ptr<BatchArrays> arrays_;
  std::vector<EngineArray<float>> output_arrays_;
  std::vector<OutputRows> output_rows_;
  std::vector<EngineArray<float>> gradient_arrays_;
  OutputValues outputs_;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_CONTRACT_GROUP_H_
