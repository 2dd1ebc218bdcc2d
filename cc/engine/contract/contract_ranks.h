// A group of an engine's tables over ranks, called through the engine interface. The ranks are objects of one
// process.
#ifndef SOK_CC_ENGINE_CONTRACT_CONTRACT_RANKS_H_
#define SOK_CC_ENGINE_CONTRACT_CONTRACT_RANKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/contract/contract_batch.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/engine_case.h"

namespace sok {

// The tables of a group in one of several processes: what ContractRanks and ContractServers share.

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

class ContractRanks {
 public:
  // `options` are those of the tables on one rank; rank and number of ranks are filled in.
  ContractRanks(const EngineCase& engine, Executor& executor, int ranks,
                const std::vector<TableOptions>& options, std::vector<ExchangeMode> modes);

  int size() const { return static_cast<int>(ranks_.size()); }
  EngineContext context() { return EngineContext{executor_, engine_.memory->stream()}; }
  EngineTable& table(int rank, size_t t) { return ranks_[rank].process.table(t); }
  // The result of the last pass on a rank.
  const Status& status(int rank) const { return ranks_[rank].status; }
  const OutputValues& outputs(int rank) const { return ranks_[rank].outputs; }

  // The forward pass of all ranks. errors[r], if any, is the status that rank r passes to Route; and ranks
  // whose only_reads[r], if any, is true do not train.
  void Forward(const std::vector<ContractBatch>& batches, bool training = true,
               const std::vector<Status>& errors = {}, const std::vector<bool>& only_reads = {});
  // The backward pass of all ranks, and a step of every table with the sums divided by `divisor`: fused, or
  // from sums in memory.
  void Train(const std::vector<OutputValues>& gradients, const std::string& optimizer,
             const std::vector<float>& hyper, bool fused, GradientFormat format = GradientFormat::kFloat32,
             float divisor = 1.0f);
  // The last calls of the two passes on one rank, from the messages that it received.
  void Combine(int rank);
  Status TrainOn(int rank, const std::string& optimizer, const std::vector<float>& hyper, bool fused,
                 float divisor = 1.0f);
  // Takes the last message away that a rank received.
  void LoseMessage(int rank) { ranks_[rank].inbox.RemoveLast(); }
  // Serve on one rank, for requests that a test wrote: requests[r] has the words of rank r's message. Returns
  // the error of the answer to the rank itself. served(rank) is the result.
  Status Serve(int rank, const std::vector<std::vector<int64_t>>& requests);
  // The first call of the backward pass on one rank.
  Status Reduce(int rank, const OutputValues& gradients, GradientFormat format = GradientFormat::kFloat32);
  const ServedGroup& served(int rank) const { return *ranks_[rank].served; }
  // The gradients of the weights of a rank's last forward pass, by lookup, in the order of the ids in the
  // bags.
  Status WeightGradients(int rank, const OutputValues& gradients, OutputValues* weight_gradients);
  // The words that the ranks have sent each other since the last call: by exchange, by sender.
  using SentWords = std::vector<std::vector<std::vector<int64_t>>>;
  SentWords TakeSentWords() { return std::exchange(sent_words_, {}); }
  // Swaps a rank with the same rank of another group of the same size.
  void SwapRank(int rank, ContractRanks* other) { std::swap(ranks_[rank], other->ranks_[rank]); }
  // The rows of `keys` in table `t`, looked up by rank 0.
  ValuesByKey Rows(size_t t, const std::vector<int64_t>& keys);

 private:
  struct Rank {
    explicit Rank(ContractProcess made) : process(std::move(made)) {}

    ContractProcess process;
    std::unique_ptr<RoutedGroup> routed;
    std::unique_ptr<ServedGroup> served;
    ContractBatch batch;
    std::unique_ptr<BatchArrays> arrays;
    OutputValues outputs;
    Status status;
    // The messages that the rank wrote, and those that it received.
    std::unique_ptr<EngineArray<int64_t>> words;
    std::vector<int64_t> sizes;
    std::vector<EngineArray<int64_t>> arrived;
    Inbox inbox;
  };
  // Allocates a rank's message buffer; for AllocateWords.
  struct Allocation {
    EngineMemory* memory;
    Rank* rank;
    int64_t* operator()(Span<const int64_t> sizes) const;
  };

  Allocation AllocationOf(Rank& rank) { return {engine_.memory.get(), &rank}; }
  // Delivers all messages of one exchange.
  void Exchange();

  const EngineCase& engine_;
  Executor& executor_;
  std::vector<ExchangeMode> modes_;
  std::vector<Rank> ranks_;
  SentWords sent_words_;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_CONTRACT_RANKS_H_
