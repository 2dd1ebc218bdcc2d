#include "cc/engine/contract/contract_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace sok {

TableOptions ContractOptions(const std::string& name, int64_t dim, int64_t capacity) {
  TableOptions options;
  options.name = name;
  options.dim = dim;
  options.capacity = capacity;
  options.initializer = {InitializerKind::kUniform, -1.0f, 1.0f,
                         17 * static_cast<uint64_t>(dim) + name.size()};
  return options;
}

void GiveRows(uint32_t rows, TableOptions* options) {
  options->initializer = Initializer(InitializerKind::kGiven, 0.0f, 0.0f, 0, rows);
  options->initial_rows.resize(rows * options->dim);
  for (size_t i = 0; i < options->initial_rows.size(); ++i) {
    options->initial_rows[i] = 0.125f * static_cast<float>(i) - 1.0f;
  }
}

ContractGroup::ContractGroup(const EngineCase& engine, Executor& executor,
                             const std::vector<TableOptions>& options)
    : engine_(engine),
      executor_(executor),
      plan_(engine.engine->NewPlan()),
      scratch_(engine.engine->NewScratch()) {
  for (TableOptions table_options : options) {
    table_options.memory = engine.row_memory;
    table_options.tiers = engine.tiers;
    auto made = engine.engine->MakeTable(context(), table_options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    tables_.push_back(std::move(made.value()));
    pointers_.push_back(tables_.back().get());
  }
}

ContractGroup::ContractGroup(const EngineCase& engine, Executor& executor, const ContractGroup& same_tables,
                             bool reverse)
    : engine_(engine),
      executor_(executor),
      tables_(same_tables.tables_),
      pointers_(same_tables.pointers_),
      plan_(engine.engine->NewPlan()),
      scratch_(engine.engine->NewScratch()) {
  if (!reverse) return;
  std::reverse(tables_.begin(), tables_.end());
  std::reverse(pointers_.begin(), pointers_.end());
}

int64_t ContractGroup::dim(const ContractLookup& lookup) const {
  return pointers_[lookup.spec.table]->options().dim;
}

void ContractGroup::MakeOutputs(const ContractBatch& batch) {
  batch_ = batch;
  arrays_ = std::make_unique<BatchArrays>(memory(), batch);
  output_arrays_.clear();
  output_rows_.clear();
  for (const ContractLookup& lookup : batch) {
    // Elements that are not written stay NaN. Strides above the row's length occur for outputs side by side.
    const int64_t stride = dim(lookup) + static_cast<int64_t>(output_arrays_.size()) % 3;
    output_arrays_.emplace_back(
        memory(), std::vector<float>(lookup.bags.size() * static_cast<size_t>(stride), std::nanf("")));
    output_rows_.push_back({output_arrays_.back().data(), stride});
  }
}

void ContractGroup::ReadOutputs() {
  outputs_.clear();
  for (size_t l = 0; l < batch_.size(); ++l) {
    const std::vector<float> strided = output_arrays_[l].Read();
    std::vector<float> dense;
    for (size_t b = 0; b < batch_[l].bags.size(); ++b) {
      const auto row = strided.begin() + static_cast<int64_t>(b) * output_rows_[l].stride;
      dense.insert(dense.end(), row, row + dim(batch_[l]));
      for (int64_t c = dim(batch_[l]); c < output_rows_[l].stride; ++c) {
        EXPECT_TRUE(std::isnan(row[c])) << "written between the rows of lookup " << l;
      }
    }
    outputs_.push_back(std::move(dense));
  }
}

Status ContractGroup::Lookup(const ContractBatch& batch, bool training) {
  MakeOutputs(batch);
  SOK_RETURN_IF_ERROR(engine_.engine->Lookup(context(),
                                             {pointers_, arrays_->specs(), arrays_->inputs(), training},
                                             plan_.get(), output_rows_, scratch_.get()));
  ReadOutputs();
  return OkStatus();
}

Status ContractGroup::Merge(const ContractBatch& batch, bool training) {
  MakeOutputs(batch);
  const Status status = engine_.engine->Merge(
      context(), {pointers_, arrays_->specs(), arrays_->inputs(), training}, plan_.get(), scratch_.get());
  // Merge does not keep the inputs.
  arrays_.reset();
  return status;
}

Status ContractGroup::Read() {
  SOK_RETURN_IF_ERROR(engine_.engine->Read(context(), pointers_, plan_.get(), output_rows_, scratch_.get()));
  ReadOutputs();
  return OkStatus();
}

std::vector<GradientRows> ContractGroup::Upload(const OutputValues& gradients) {
  gradient_arrays_.clear();
  std::vector<GradientRows> rows;
  for (size_t l = 0; l < batch_.size(); ++l) {
    gradient_arrays_.emplace_back(memory(), gradients[l]);
    rows.push_back({gradient_arrays_.back().data(), dim(batch_[l])});
  }
  return rows;
}

Status ContractGroup::SumGradients(const OutputValues& gradients, TableGradients* sums) {
  const std::vector<GradientRows> rows = Upload(gradients);
  std::vector<float*> grads_out;
  for (size_t t = 0; t < pointers_.size(); ++t) {
    const int64_t trained = plan_->trained_rows(static_cast<int>(t));
    sums->references.push_back(EngineArray<int64_t>::Unwritten(memory(), trained));
    sums->values.push_back(EngineArray<float>::Unwritten(memory(), trained * pointers_[t]->options().dim));
    grads_out.push_back(sums->values.back().data());
    SOK_RETURN_IF_ERROR(
        plan_->WriteReferences(context(), static_cast<int>(t), sums->references.back().data()));
  }
  return engine_.engine->Backward(context(), *plan_, rows, grads_out, scratch_.get());
}

Status ContractGroup::Backward(const OutputValues& gradients, std::vector<ValuesByKey>* by_reference) {
  TableGradients sums;
  SOK_RETURN_IF_ERROR(SumGradients(gradients, &sums));
  by_reference->clear();
  for (size_t t = 0; t < pointers_.size(); ++t) {
    const std::vector<int64_t> references = sums.references[t].Read();
    const std::vector<float> values = sums.values[t].Read();
    const int64_t width = pointers_[t]->options().dim;
    ValuesByKey rows;
    for (size_t u = 0; u < references.size(); ++u) {
      const auto row = values.begin() + static_cast<int64_t>(u) * width;
      rows[references[u]].assign(row, row + width);
    }
    EXPECT_EQ(rows.size(), references.size()) << "a reference twice in table " << t;
    by_reference->push_back(std::move(rows));
  }
  return OkStatus();
}

Status ContractGroup::WeightGradients(const OutputValues& gradients, OutputValues* weight_gradients) {
  const std::vector<GradientRows> rows = Upload(gradients);
  std::vector<EngineArray<float>> arrays;
  std::vector<float*> out;
  for (const ContractLookup& lookup : batch_) {
    arrays.emplace_back(memory(), std::vector<float>(static_cast<size_t>(lookup.num_ids()), std::nanf("")));
    out.push_back(lookup.spec.weighted ? arrays.back().data() : nullptr);
  }
  SOK_RETURN_IF_ERROR(engine_.engine->WeightGradients(context(), pointers_, *plan_, rows, out));
  weight_gradients->clear();
  for (size_t l = 0; l < batch_.size(); ++l) {
    const std::vector<float> given = arrays[l].Read();
    std::vector<float> in_bags(given.size());
    for (size_t i = 0; i < given.size(); ++i) {
      in_bags[static_cast<size_t>(arrays_->given_order(l)[i])] = given[i];
    }
    weight_gradients->push_back(std::move(in_bags));
  }
  return OkStatus();
}

Status ContractGroup::BackwardAndApply(const OutputValues& gradients, const std::string& optimizer,
                                       const std::vector<float>& hyper) {
  TableGradients sums;
  SOK_RETURN_IF_ERROR(SumGradients(gradients, &sums));
  for (size_t t = 0; t < pointers_.size(); ++t) {
    SOK_RETURN_IF_ERROR(pointers_[t]->ApplyGradients(context(), optimizer, hyper, sums.references[t].view(),
                                                     sums.values[t].data(), /*distinct=*/true));
  }
  return OkStatus();
}

Status ContractGroup::Train(const OutputValues& gradients, const std::string& optimizer,
                            const std::vector<float>& hyper) {
  const std::vector<GradientRows> rows = Upload(gradients);
  std::vector<EngineStep> steps;
  // In reverse: steps may be in any order.
  for (size_t t = pointers_.size(); t-- > 0;) {
    steps.push_back({static_cast<int>(t), pointers_[t], Span<const float>(hyper)});
  }
  return engine_.engine->Train(context(), *plan_, rows, optimizer, steps, scratch_.get());
}

ValuesByKey ContractGroup::Rows(size_t t, const std::vector<int64_t>& keys) {
  const int64_t width = pointers_[t]->options().dim;
  ContractLookup lookup;
  lookup.spec.layout = IdLayout::kDense;
  for (const int64_t key : keys) lookup.bags.push_back({{key}, {1.0}});
  const BatchArrays arrays(memory(), {lookup});
  const EngineArray<float> output(
      memory(), std::vector<float>(keys.size() * static_cast<size_t>(width), std::nanf("")));
  const std::unique_ptr<GroupPlan> plan = engine_.engine->NewPlan();
  EngineTable* const table = pointers_[t];
  const OutputRows rows{output.data(), width};
  const Status status = engine_.engine->Lookup(
      context(), {Span<EngineTable* const>(&table, 1), arrays.specs(), arrays.inputs(), /*training=*/false},
      plan.get(), Span<const OutputRows>(&rows, 1), scratch_.get());
  EXPECT_TRUE(status.ok()) << status.message();
  const std::vector<float> values = output.Read();
  ValuesByKey by_key;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto row = values.begin() + static_cast<int64_t>(i) * width;
    by_key[keys[i]].assign(row, row + width);
  }
  return by_key;
}

Status ContractGroup::Assign(size_t t, const std::vector<int64_t>& keys, const std::vector<float>& values) {
  const EngineArray<int64_t> engine_keys(memory(), keys);
  const EngineArray<float> engine_values(memory(), values);
  return pointers_[t]->Assign(context(), engine_keys.view(), engine_values.data());
}

Status ContractGroup::Erase(size_t t, const std::vector<int64_t>& keys, int64_t* erased) {
  const EngineArray<int64_t> engine_keys(memory(), keys);
  return pointers_[t]->Erase(context(), engine_keys.view(), erased);
}

OutputValues ContractGroup::RandomGradients(const ContractBatch& batch, uint32_t seed) const {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  OutputValues gradients;
  for (const ContractLookup& lookup : batch) {
    gradients.emplace_back(lookup.bags.size() * static_cast<size_t>(dim(lookup)));
    for (float& value : gradients.back()) value = uniform(random);
  }
  return gradients;
}

}  // namespace sok
