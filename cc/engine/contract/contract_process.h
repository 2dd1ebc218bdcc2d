// The tables of a group in one of several processes: what ContractRanks and ContractServers share.
#ifndef SOK_CC_ENGINE_CONTRACT_CONTRACT_PROCESS_H_
#define SOK_CC_ENGINE_CONTRACT_CONTRACT_PROCESS_H_

#include <memory>
#include <string>
#include <vector>

#include "cc/engine/contract/contract_batch.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/engine_case.h"

namespace sok {

class ContractProcess {
 public:
  // `options` are those of one process; rank and number of ranks are filled in.
  ContractProcess(const EngineCase& engine, Executor& executor, std::vector<TableOptions> options, int rank,
                  int ranks);

  EngineTable& table(size_t t) const { return *tables_[t]; }
  Span<EngineTable* const> tables() const { return pointers_; }
  int64_t dim(const ContractLookup& lookup) const { return pointers_[lookup.spec.table]->options().dim; }
  EngineScratch* scratch() const { return scratch_.get(); }

  // The last call of the forward pass. What it does not write is NaN in *outputs.
  Status Combine(const RoutedGroup& routed, const Inbox& replies, const ContractBatch& batch,
                 OutputValues* outputs) const;
  // Gradients of a batch's outputs in the engine's memory, which *arrays keeps.
  std::vector<GradientRows> Upload(const ContractBatch& batch, const OutputValues& gradients,
                                   std::vector<EngineArray<float>>* arrays) const;
  // A step of every table with the sums divided by `divisor`: fused, with the tables in reverse order, or
  // from sums in memory.
  Status TrainOn(const ServedGroup& served, const Inbox& gradients, const std::string& optimizer,
                 const std::vector<float>& hyper, bool fused, float divisor = 1.0f) const;

 private:
  EngineContext context() const { return EngineContext{*executor_, engine_->memory->stream()}; }

  const EngineCase* engine_;
  Executor* executor_;
  std::vector<std::shared_ptr<EngineTable>> tables_;
  std::vector<EngineTable*> pointers_;
  std::unique_ptr<EngineScratch> scratch_;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_CONTRACT_PROCESS_H_
