#include "cc/engine/contract/contract_ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace sok {

ContractProcess::ContractProcess(const EngineCase& engine, Executor& executor,
                                 std::vector<TableOptions> options, int rank, int ranks)
    : engine_(&engine), executor_(&executor) {
  for (TableOptions& table : options) {
    table.rank = rank;
    table.ranks = ranks;
    table.memory = engine.row_memory;
    table.tiers = engine.tiers;
    auto made = engine.engine->MakeTable(context(), table);
    EXPECT_TRUE(made.ok()) << made.status().message();
    tables_.push_back(std::move(made.value()));
    pointers_.push_back(tables_.back().get());
  }
  scratch_ = engine.engine->NewScratch();
}

Status ContractProcess::Combine(const RoutedGroup& routed, const Inbox& replies, const ContractBatch& batch,
                                OutputValues* outputs) const {
  std::vector<EngineArray<float>> arrays;
  std::vector<OutputRows> rows;
  for (const ContractLookup& lookup : batch) {
    const auto floats = lookup.bags.size() * static_cast<size_t>(dim(lookup));
    arrays.emplace_back(*engine_->memory, std::vector<float>(floats, std::nanf("")));
    rows.push_back({arrays.back().data(), dim(lookup)});
  }
  const Status status = engine_->engine->Combine(context(), pointers_, routed, replies, rows);
  outputs->clear();
  for (const EngineArray<float>& array : arrays) outputs->push_back(array.Read());
  return status;
}

std::vector<GradientRows> ContractProcess::Upload(const ContractBatch& batch, const OutputValues& gradients,
                                                  std::vector<EngineArray<float>>* arrays) const {
  std::vector<GradientRows> rows;
  for (size_t l = 0; l < batch.size(); ++l) {
    arrays->emplace_back(*engine_->memory, gradients[l]);
    rows.push_back({arrays->back().data(), dim(batch[l])});
  }
  return rows;
}

Status ContractProcess::TrainOn(const ServedGroup& served, const Inbox& gradients,
                                const std::string& optimizer, const std::vector<float>& hyper, bool fused,
                                float divisor) const {
  Engine& engine = *engine_->engine;
  if (fused) {
    std::vector<EngineStep> steps;
    for (size_t t = pointers_.size(); t-- > 0;) {
      steps.push_back({static_cast<int>(t), pointers_[t], Span<const float>(hyper)});
    }
    return engine.SumAndTrain(context(), served, gradients, divisor, optimizer, steps, scratch());
  }
  std::vector<EngineArray<int64_t>> references;
  std::vector<EngineArray<float>> sums;
  std::vector<float*> grads_out;
  for (size_t t = 0; t < pointers_.size(); ++t) {
    const int64_t trained = served.trained_rows(static_cast<int>(t));
    references.push_back(EngineArray<int64_t>::Unwritten(*engine_->memory, trained));
    sums.push_back(EngineArray<float>::Unwritten(*engine_->memory, trained * pointers_[t]->options().dim));
    grads_out.push_back(sums.back().data());
    SOK_RETURN_IF_ERROR(served.WriteReferences(context(), static_cast<int>(t), references.back().data()));
  }
  SOK_RETURN_IF_ERROR(engine.Sum(context(), served, gradients, grads_out, scratch()));
  for (size_t t = 0; t < pointers_.size(); ++t) {
    SOK_RETURN_IF_ERROR(engine.Divide(context(), grads_out[t], sums[t].size(), divisor, grads_out[t]));
    SOK_RETURN_IF_ERROR(pointers_[t]->ApplyGradients(context(), optimizer, hyper, references[t].view(),
                                                     sums[t].data(), /*distinct=*/true));
  }
  return OkStatus();
}

ContractRanks::ContractRanks(const EngineCase& engine, Executor& executor, int ranks,
                             const std::vector<TableOptions>& options, std::vector<ExchangeMode> modes)
    : engine_(engine), executor_(executor), modes_(std::move(modes)) {
  for (int r = 0; r < ranks; ++r) ranks_.emplace_back(ContractProcess(engine, executor, options, r, ranks));
}

int64_t* ContractRanks::Allocation::operator()(Span<const int64_t> sizes) const {
  rank->sizes.assign(sizes.begin(), sizes.end());
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  // Words that are not written stay garbage.
  rank->words = std::make_unique<EngineArray<int64_t>>(
      *memory, std::vector<int64_t>(static_cast<size_t>(total), 0x7ff8dead7ff8dead));
  return rank->words->data();
}

void ContractRanks::Exchange() {
  std::vector<std::vector<std::vector<int64_t>>> messages(ranks_.size());  // by receiver and sender
  sent_words_.emplace_back();
  for (size_t from = 0; from < ranks_.size(); ++from) {
    std::vector<int64_t> words = ranks_[from].words->Read();
    sent_words_.back().push_back(words);
    words.push_back(0);  // so that data() is not null without words
    const std::vector<int64_t*> starts =
        MessageStarts(static_cast<int>(from), ranks_[from].sizes, words.data());
    for (size_t to = 0; to < ranks_.size(); ++to) {
      messages[to].emplace_back(starts[to], starts[to] + ranks_[from].sizes[to]);
    }
  }
  for (size_t to = 0; to < ranks_.size(); ++to) {
    ranks_[to].arrived.clear();
    ranks_[to].inbox = Inbox(static_cast<int>(to));
    for (const std::vector<int64_t>& message : messages[to]) {
      ranks_[to].arrived.emplace_back(*engine_.memory, message);
      ranks_[to].inbox.Add(ranks_[to].arrived.back().view());
    }
  }
}

void ContractRanks::Forward(const std::vector<ContractBatch>& batches, bool training,
                            const std::vector<Status>& errors, const std::vector<bool>& only_reads) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    rank.batch = batches[r];
    rank.arrays = std::make_unique<BatchArrays>(*engine_.memory, batches[r]);
    rank.routed = engine_.engine->NewRoutedGroup();
    const bool trains = training && (only_reads.empty() || !only_reads[r]);
    rank.status = engine_.engine->Route(
        context(), {rank.process.tables(), rank.arrays->specs(), rank.arrays->inputs(), trains}, modes_,
        errors.empty() ? OkStatus() : errors[r], rank.routed.get(), rank.process.scratch(),
        AllocationOf(rank));
    ASSERT_TRUE(rank.status.ok()) << rank.status.message();
  }
  Exchange();
  for (Rank& rank : ranks_) {
    rank.served = engine_.engine->NewServedGroup();
    rank.status = engine_.engine->Serve(context(), rank.process.tables(), modes_, rank.inbox,
                                        rank.served.get(), rank.process.scratch(), AllocationOf(rank));
    ASSERT_TRUE(rank.status.ok()) << rank.status.message();
  }
  Exchange();
  for (int r = 0; r < size(); ++r) Combine(r);
}

Status ContractRanks::Serve(int r, const std::vector<std::vector<int64_t>>& requests) {
  Rank& rank = ranks_[r];
  rank.arrived.clear();
  rank.inbox = Inbox(r);
  for (const std::vector<int64_t>& request : requests) {
    rank.arrived.emplace_back(*engine_.memory, request);
    rank.inbox.Add(rank.arrived.back().view());
  }
  rank.served = engine_.engine->NewServedGroup();
  SOK_RETURN_IF_ERROR(engine_.engine->Serve(context(), rank.process.tables(), modes_, rank.inbox,
                                            rank.served.get(), rank.process.scratch(), AllocationOf(rank)));
  std::vector<int64_t> words = rank.words->Read();
  const int64_t* const answer = MessageStarts(r, rank.sizes, words.data())[r];
  MessageHeader header;
  Span<const int64_t> payload;
  SOK_RETURN_IF_ERROR(ReadHeader({answer, rank.sizes[r]}, MessageKind::kReply, &header, &payload));
  return header.status;
}

void ContractRanks::Combine(int r) {
  Rank& rank = ranks_[r];
  rank.status = rank.process.Combine(*rank.routed, rank.inbox, rank.batch, &rank.outputs);
}

void ContractRanks::Train(const std::vector<OutputValues>& gradients, const std::string& optimizer,
                          const std::vector<float>& hyper, bool fused, GradientFormat format, float divisor) {
  for (int r = 0; r < size(); ++r) {
    ranks_[r].status = Reduce(r, gradients[r], format);
    ASSERT_TRUE(ranks_[r].status.ok()) << ranks_[r].status.message();
  }
  Exchange();
  for (int r = 0; r < size(); ++r) ranks_[r].status = TrainOn(r, optimizer, hyper, fused, divisor);
}

Status ContractRanks::Reduce(int r, const OutputValues& gradients, GradientFormat format) {
  Rank& rank = ranks_[r];
  std::vector<EngineArray<float>> arrays;
  return engine_.engine->Reduce(context(), *rank.routed, rank.process.Upload(rank.batch, gradients, &arrays),
                                rank.inbox, format, AllocationOf(rank));
}

Status ContractRanks::TrainOn(int r, const std::string& optimizer, const std::vector<float>& hyper,
                              bool fused, float divisor) {
  const Rank& rank = ranks_[r];
  return rank.process.TrainOn(*rank.served, rank.inbox, optimizer, hyper, fused, divisor);
}

Status ContractRanks::WeightGradients(int r, const OutputValues& gradients, OutputValues* weight_gradients) {
  Rank& rank = ranks_[r];
  std::vector<EngineArray<float>> gradient_arrays;
  const std::vector<GradientRows> rows = rank.process.Upload(rank.batch, gradients, &gradient_arrays);
  std::vector<EngineArray<float>> arrays;
  std::vector<float*> out;
  for (const ContractLookup& lookup : rank.batch) {
    arrays.emplace_back(*engine_.memory,
                        std::vector<float>(static_cast<size_t>(lookup.num_ids()), std::nanf("")));
    out.push_back(lookup.spec.weighted ? arrays.back().data() : nullptr);
  }
  SOK_RETURN_IF_ERROR(engine_.engine->RoutedWeightGradients(context(), *rank.routed, rank.inbox, rows, out));
  weight_gradients->clear();
  for (size_t l = 0; l < rank.batch.size(); ++l) {
    const std::vector<float> given = arrays[l].Read();
    std::vector<float> in_bags(given.size());
    for (size_t i = 0; i < given.size(); ++i) {
      in_bags[static_cast<size_t>(rank.arrays->given_order(l)[i])] = given[i];
    }
    weight_gradients->push_back(std::move(in_bags));
  }
  return OkStatus();
}

ValuesByKey ContractRanks::Rows(size_t t, const std::vector<int64_t>& keys) {
  ContractLookup dense;
  dense.spec.layout = IdLayout::kDense;
  dense.spec.table = static_cast<int>(t);
  for (const int64_t key : keys) dense.bags.push_back({{key}, {1.0}});
  // kSums needs a pooled lookup, and this one is not, so all tables answer with rows.
  std::vector<ExchangeMode> rows_of_all(modes_.size(), ExchangeMode::kRows);
  rows_of_all.swap(modes_);
  std::vector<ContractBatch> batches(ranks_.size());
  batches[0].push_back(dense);
  Forward(batches, /*training=*/false);
  rows_of_all.swap(modes_);
  EXPECT_TRUE(status(0).ok()) << status(0).message();
  const int64_t dim = table(0, t).options().dim;
  ValuesByKey rows;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto row = outputs(0)[0].begin() + static_cast<int64_t>(i) * dim;
    rows[keys[i]].assign(row, row + dim);
  }
  return rows;
}

}  // namespace sok
