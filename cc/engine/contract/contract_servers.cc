#include "cc/engine/contract/contract_servers.h"

#include <gtest/gtest.h>

#include <utility>

namespace sok {

ContractServers::ContractServers(const EngineCase& engine, Executor& executor, int servers, int askers,
                                 const std::vector<TableOptions>& options, std::vector<ExchangeMode> modes,
                                 const std::vector<TableOptions>& of_askers)
    : engine_(engine), executor_(executor), modes_(std::move(modes)) {
  for (int s = 0; s < servers; ++s) servers_.emplace_back(engine, executor, options, s, servers);
  std::vector<TableOptions> described = of_askers.empty() ? options : of_askers;
  for (TableOptions& table : described) {
    table.initializer = {};
    table.initial_rows.clear();
  }
  for (int a = 0; a < askers; ++a) {
    askers_.emplace_back(ContractProcess(engine, executor, described, kNoRank, servers));
  }
}

int64_t* ContractServers::Outbox::operator()(Span<const int64_t> sizes_of_messages) {
  sizes.assign(sizes_of_messages.begin(), sizes_of_messages.end());
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  words = std::make_unique<EngineArray<int64_t>>(EngineArray<int64_t>::Unwritten(*memory, total));
  return words->data();
}

std::vector<EngineArray<int64_t>> ContractServers::Outbox::Messages() const {
  const std::vector<int64_t> all = words->Read();
  std::vector<EngineArray<int64_t>> messages;
  auto begin = all.begin();
  for (const int64_t size : sizes) {
    messages.emplace_back(*memory, std::vector<int64_t>(begin, begin + size));
    begin += size;
  }
  EXPECT_EQ(begin, all.end());
  return messages;
}

Inbox ContractServers::RepliesTo(const Asker& asker) const {
  Inbox inbox(kNoRank);
  for (const EngineArray<int64_t>& reply : asker.replies) inbox.Add(reply.view());
  return inbox;
}

Status ContractServers::Forward(int a, const ContractBatch& batch, bool training, const Status& error) {
  Asker& asker = askers_[a];
  asker.batch = batch;
  asker.arrays = std::make_unique<BatchArrays>(*engine_.memory, batch);
  asker.routed = engine_.engine->NewRoutedGroup();
  Outbox requests{engine_.memory.get(), {}, nullptr};
  SOK_RETURN_IF_ERROR(engine_.engine->Route(
      context(), {asker.process.tables(), asker.arrays->specs(), asker.arrays->inputs(), training}, modes_,
      error, asker.routed.get(), asker.process.scratch(), requests));
  const std::vector<EngineArray<int64_t>> to_servers = requests.Messages();
  EXPECT_EQ(to_servers.size(), servers_.size());
  asker.served.clear();
  asker.replies.clear();
  for (size_t s = 0; s < servers_.size(); ++s) {
    Inbox inbox(kNoRank);
    inbox.Add(to_servers[s].view());
    asker.served.push_back(engine_.engine->NewServedGroup());
    Outbox reply{engine_.memory.get(), {}, nullptr};
    SOK_RETURN_IF_ERROR(engine_.engine->Serve(context(), servers_[s].tables(), modes_, inbox,
                                              asker.served.back().get(), servers_[s].scratch(), reply));
    EXPECT_EQ(reply.sizes.size(), 1u);
    asker.replies.push_back(std::move(reply.Messages()[0]));
  }
  return asker.process.Combine(*asker.routed, RepliesTo(asker), batch, &asker.outputs);
}

Status ContractServers::Train(int a, const OutputValues& gradients, const std::string& optimizer,
                              const std::vector<float>& hyper, bool fused, GradientFormat format,
                              int lookup_of) {
  Asker& asker = askers_[a];
  std::vector<EngineArray<float>> arrays;
  const std::vector<GradientRows> rows = asker.process.Upload(asker.batch, gradients, &arrays);
  Outbox outbox{engine_.memory.get(), {}, nullptr};
  SOK_RETURN_IF_ERROR(
      engine_.engine->Reduce(context(), *asker.routed, rows, RepliesTo(asker), format, outbox));
  const std::vector<EngineArray<int64_t>> messages = outbox.Messages();
  const Asker& looked_up = askers_[lookup_of < 0 ? a : lookup_of];
  for (size_t s = 0; s < servers_.size(); ++s) {
    Inbox inbox(kNoRank);
    inbox.Add(messages[s].view());
    SOK_RETURN_IF_ERROR(servers_[s].TrainOn(*looked_up.served[s], inbox, optimizer, hyper, fused));
  }
  return OkStatus();
}

}  // namespace sok
