// A group of an engine's tables on several ranks, which processes that are no ranks look up in: tables on
// parameter servers. Servers and askers are objects of one process.
#ifndef SOK_CC_ENGINE_CONTRACT_CONTRACT_SERVERS_H_
#define SOK_CC_ENGINE_CONTRACT_CONTRACT_SERVERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/contract/contract_batch.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/contract_process.h"
#include "cc/engine/contract/engine_case.h"

namespace sok {

class ContractServers {
 public:
  // `options` are those of the tables on one server; rank and number of ranks are filled in. Without initial
  // rows they are those of the askers' tables, unless `of_askers` has others.
  ContractServers(const EngineCase& engine, Executor& executor, int servers, int askers,
                  const std::vector<TableOptions>& options, std::vector<ExchangeMode> modes,
                  const std::vector<TableOptions>& of_askers = {});

  EngineContext context() { return EngineContext{executor_, engine_.memory->stream()}; }
  EngineTable& table(int server, size_t t) { return servers_[server].table(t); }
  EngineTable& table_of_asker(int asker, size_t t) { return askers_[asker].process.table(t); }
  const OutputValues& outputs(int asker) const { return askers_[asker].outputs; }

  // The forward pass of one asker: route, serve on all servers, combine. `error` is passed to Route.
  Status Forward(int asker, const ContractBatch& batch, bool training = true,
                 const Status& error = OkStatus());
  // The backward pass of an asker's last lookup, and a step of all tables on all servers: fused, or from sums
  // in memory. With `lookup_of`, the servers take the gradients for those of that asker's last lookup.
  // Returns the first error.
  Status Train(int asker, const OutputValues& gradients, const std::string& optimizer,
               const std::vector<float>& hyper, bool fused, GradientFormat format = GradientFormat::kFloat32,
               int lookup_of = -1);

 private:
  struct Asker {
    explicit Asker(ContractProcess made) : process(std::move(made)) {}

    ContractProcess process;
    std::unique_ptr<RoutedGroup> routed;
    std::vector<std::unique_ptr<ServedGroup>> served;  // by server
    ContractBatch batch;
    std::unique_ptr<BatchArrays> arrays;
    std::vector<EngineArray<int64_t>> replies;  // by server
    OutputValues outputs;
  };
  // The messages that one call writes.
  struct Outbox {
    EngineMemory* memory;
    std::vector<int64_t> sizes;
    std::unique_ptr<EngineArray<int64_t>> words;

    int64_t* operator()(Span<const int64_t> sizes_of_messages);
    std::vector<EngineArray<int64_t>> Messages() const;
  };

  Inbox RepliesTo(const Asker& asker) const;

  const EngineCase& engine_;
  Executor& executor_;
  std::vector<ExchangeMode> modes_;
  std::vector<ContractProcess> servers_;
  std::vector<Asker> askers_;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_CONTRACT_SERVERS_H_
