#include "cc/engine/contract/contract_servers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace sok {

ContractServers::ContractServers(const EngineCase& engine, Executor& executor, int servers, int askers,
                                 const std::vector<TableOptions>& options, std::vector<ExchangeMode> modes,
                                 const std::vector<TableOptions>& of_askers)
    : engine_(engine), executor_(executor), modes_(std::move(modes)), askers_(static_cast<size_t>(askers)) {
  for (int s = 0; s < servers; ++s) servers_.push_back(MakeTables(options, s, servers));
  std::vector<TableOptions> described = of_askers.empty() ? options : of_askers;
  for (TableOptions& table : described) {
    table.initializer = {};
    table.initial_rows.clear();
  }
  for (Asker& asker : askers_) asker.process = MakeTables(described, kNoRank, servers);
}

ContractServers::Process ContractServers::MakeTables(std::vector<TableOptions> options, int rank, int ranks) {
  Process process;
  for (TableOptions& table : options) {
    table.rank = rank;
    table.ranks = ranks;
    table.memory = engine_.row_memory;
    auto made = engine_.engine->MakeTable(context(), table);
    EXPECT_TRUE(made.ok()) << made.status().message();
    process.tables.push_back(std::move(made.value()));
    process.pointers.push_back(process.tables.back().get());
  }
  process.scratch = engine_.engine->NewScratch();
  return process;
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
      context(), {asker.process.pointers, asker.arrays->specs(), asker.arrays->inputs(), training}, modes_,
      error, asker.routed.get(), asker.process.scratch.get(), requests));
  const std::vector<EngineArray<int64_t>> to_servers = requests.Messages();
  EXPECT_EQ(to_servers.size(), servers_.size());
  asker.served.clear();
  asker.replies.clear();
  for (size_t s = 0; s < servers_.size(); ++s) {
    Inbox inbox(kNoRank);
    inbox.Add(to_servers[s].view());
    asker.served.push_back(engine_.engine->NewServedGroup());
    Outbox reply{engine_.memory.get(), {}, nullptr};
    SOK_RETURN_IF_ERROR(engine_.engine->Serve(context(), servers_[s].pointers, modes_, inbox,
                                              asker.served.back().get(), servers_[s].scratch.get(), reply));
    EXPECT_EQ(reply.sizes.size(), 1u);
    asker.replies.push_back(std::move(reply.Messages()[0]));
  }
  std::vector<EngineArray<float>> arrays;
  std::vector<OutputRows> rows;
  for (const ContractLookup& lookup : batch) {
    const int64_t dim = asker.process.pointers[lookup.spec.table]->options().dim;
    arrays.emplace_back(*engine_.memory,
                        std::vector<float>(lookup.bags.size() * static_cast<size_t>(dim), std::nanf("")));
    rows.push_back({arrays.back().data(), dim});
  }
  const Status status =
      engine_.engine->Combine(context(), asker.process.pointers, *asker.routed, RepliesTo(asker), rows);
  asker.outputs.clear();
  for (const EngineArray<float>& array : arrays) asker.outputs.push_back(array.Read());
  return status;
}

Status ContractServers::Train(int a, const OutputValues& gradients, const std::string& optimizer,
                              const std::vector<float>& hyper, bool fused, GradientFormat format,
                              int lookup_of) {
  Asker& asker = askers_[a];
  std::vector<EngineArray<float>> arrays;
  std::vector<GradientRows> rows;
  for (size_t l = 0; l < asker.batch.size(); ++l) {
    arrays.emplace_back(*engine_.memory, gradients[l]);
    rows.push_back({arrays.back().data(), asker.process.pointers[asker.batch[l].spec.table]->options().dim});
  }
  Outbox outbox{engine_.memory.get(), {}, nullptr};
  SOK_RETURN_IF_ERROR(
      engine_.engine->Reduce(context(), *asker.routed, rows, RepliesTo(asker), format, outbox));
  const std::vector<EngineArray<int64_t>> messages = outbox.Messages();
  const Asker& looked_up = askers_[lookup_of < 0 ? a : lookup_of];
  for (size_t s = 0; s < servers_.size(); ++s) {
    Inbox inbox(kNoRank);
    inbox.Add(messages[s].view());
    SOK_RETURN_IF_ERROR(Step(&servers_[s], *looked_up.served[s], inbox, optimizer, hyper, fused));
  }
  return OkStatus();
}

Status ContractServers::Step(Process* server, const ServedGroup& served, const Inbox& gradients,
                             const std::string& optimizer, const std::vector<float>& hyper, bool fused) {
  std::vector<EngineStep> steps;
  std::vector<EngineArray<int64_t>> references;
  std::vector<EngineArray<float>> sums;
  std::vector<float*> grads_out;
  for (size_t t = 0; t < server->pointers.size(); ++t) {
    const int position = static_cast<int>(t);
    steps.push_back({position, server->pointers[t], Span<const float>(hyper)});
    if (fused) continue;
    const int64_t rows = served.trained_rows(position);
    references.push_back(EngineArray<int64_t>::Unwritten(*engine_.memory, rows));
    sums.push_back(EngineArray<float>::Unwritten(*engine_.memory, rows * server->pointers[t]->options().dim));
    grads_out.push_back(sums.back().data());
    SOK_RETURN_IF_ERROR(served.WriteReferences(context(), position, references.back().data()));
  }
  if (fused) {
    return engine_.engine->SumAndTrain(context(), served, gradients, /*divisor=*/1.0f, optimizer, steps,
                                       server->scratch.get());
  }
  SOK_RETURN_IF_ERROR(engine_.engine->Sum(context(), served, gradients, grads_out, server->scratch.get()));
  for (size_t t = 0; t < server->pointers.size(); ++t) {
    SOK_RETURN_IF_ERROR(server->pointers[t]->ApplyGradients(context(), optimizer, hyper, references[t].view(),
                                                            sums[t].data(), /*distinct=*/true));
  }
  return OkStatus();
}

}  // namespace sok
