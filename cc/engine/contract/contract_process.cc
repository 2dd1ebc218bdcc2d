#include "cc/engine/contract/contract_process.h"

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

}  // namespace sok
