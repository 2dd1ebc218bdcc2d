#include "cc/engine/contract/sketch_engine.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/initializers/initializer.h"
#include "cc/optimizers/rule_info.h"
#include "cc/table/table_errors.h"

namespace sok {
namespace {

class SketchTable final : public EngineTable {
 public:
  SketchTable(Engine* engine, TableOptions options) : EngineTable(engine), options_(std::move(options)) {}

  const TableOptions& options() const override { return options_; }
  const LookupCounts& lookup_counts() const override { return counts_; }
  TableDescription Describe() const override {
    const MutexLock lock(mutex_);
    const int64_t rows = static_cast<int64_t>(rows_.size());
    return {rows, rows * options_.dim * 4, steps_, optimizer_};
  }

  Status ApplyGradients(const EngineContext& /*context*/, std::string_view optimizer, Span<const float> hyper,
                        Span<const int64_t> references, const float* grads, bool /*distinct*/) override {
    const MutexLock lock(mutex_);
    const auto rule = FindRule(optimizer);
    const Status good = rule.ok() ? rule.value()->CheckHyper(hyper) : rule.status();
    if (!good.ok()) return Invalid(good.message());
    if (optimizer != "sgd") return NotOffered("other optimizers than sgd");
    std::map<int64_t, std::vector<float>> sums;
    for (int64_t i = 0; i < references.size(); ++i) {
      if (references[i] < 0 || references[i] >= static_cast<int64_t>(id_of_reference_.size())) {
        return Invalid("there never was a row ", references[i]);
      }
      std::vector<float>& sum = sums[references[i]];
      sum.resize(options_.dim, 0.0f);
      for (int64_t c = 0; c < options_.dim; ++c) sum[c] += grads[i * options_.dim + c];
    }
    for (const auto& [reference, sum] : sums) {
      const auto row = rows_.find(id_of_reference_[reference]);
      if (row == rows_.end() || row->second.reference != reference) continue;  // erased since the lookup
      for (int64_t c = 0; c < options_.dim; ++c) row->second.weights[c] -= hyper[0] * sum[c];
    }
    optimizer_ = optimizer;
    ++steps_;
    return OkStatus();
  }

  Status Assign(const EngineContext& /*context*/, Span<const int64_t> keys, const float* values) override {
    const MutexLock lock(mutex_);
    std::set<int64_t> distinct;
    for (const int64_t key : keys) {
      if (!distinct.insert(key).second) return Invalid("key ", key, " occurs twice among the keys to assign");
    }
    SOK_RETURN_IF_ERROR(CheckCapacity(distinct));
    for (int64_t i = 0; i < keys.size(); ++i) {
      if (rows_.count(keys[i]) == 0) Make(keys[i]);
      rows_[keys[i]].weights.assign(values + i * options_.dim, values + (i + 1) * options_.dim);
    }
    return OkStatus();
  }

  Status Erase(const EngineContext& /*context*/, Span<const int64_t> keys, int64_t* erased) override {
    const MutexLock lock(mutex_);
    *erased = 0;
    for (const int64_t key : keys) *erased += static_cast<int64_t>(rows_.erase(key));
    return OkStatus();
  }

  // For a training lookup: gives each distinct id a row, and sets (*references)[id].
  Status FindOrMake(const std::vector<int64_t>& ids, std::map<int64_t, int64_t>* references) {
    const MutexLock lock(mutex_);
    const std::set<int64_t> distinct(ids.begin(), ids.end());
    const size_t before = rows_.size();
    SOK_RETURN_IF_ERROR(CheckCapacity(distinct));
    for (const int64_t id : distinct) {
      if (rows_.count(id) == 0) Make(id);
      (*references)[id] = rows_[id].reference;
    }
    LookupCounts::Add(counts_.ids, static_cast<int64_t>(ids.size()));
    LookupCounts::Add(counts_.distinct_ids, static_cast<int64_t>(distinct.size()));
    LookupCounts::Add(counts_.admitted_ids, static_cast<int64_t>(rows_.size() - before));
    return OkStatus();
  }

  // The row of an id, or its initial row.
  std::vector<float> Row(int64_t id) const {
    const MutexLock lock(mutex_);
    const auto row = rows_.find(id);
    return row == rows_.end() ? InitialRow(id) : row->second.weights;
  }

  template <typename... Args>
  Status Invalid(const Args&... args) const {
    return InvalidArgument("Embedding variable '", options_.name, "': ", args...);
  }

 private:
  struct StoredRow {
    int64_t reference = 0;
    std::vector<float> weights;
  };

  std::vector<float> InitialRow(int64_t id) const {
    std::vector<float> row(options_.dim);
    FillRow(InitializerOf(options_), id, Span<float>(row));
    return row;
  }
  Status CheckCapacity(const std::set<int64_t>& wanted) const SOK_REQUIRES(mutex_) {
    const auto rows = static_cast<int64_t>(rows_.size());
    int64_t new_keys = 0;
    for (const int64_t id : wanted) new_keys += rows_.count(id) == 0 ? 1 : 0;
    if (options_.capacity == 0 || rows + new_keys <= options_.capacity) return OkStatus();
    return TableIsFull(options_, rows, new_keys);
  }
  void Make(int64_t id) SOK_REQUIRES(mutex_) {
    rows_[id] = {static_cast<int64_t>(id_of_reference_.size()), InitialRow(id)};
    id_of_reference_.push_back(id);
  }

  const TableOptions options_;
  mutable Mutex mutex_;
  LookupCounts counts_;
  std::map<int64_t, StoredRow> rows_ SOK_GUARDED_BY(mutex_);
  std::vector<int64_t> id_of_reference_;  // of all rows so far, including erased ones
  std::string optimizer_;
  int64_t steps_ = 0;
};

SketchTable& TableOf(EngineTable* table) { return *static_cast<SketchTable*>(table); }

// An occurrence of an id in a lookup, and the factor of its row in output row `bag`.
struct Occurrence {
  int64_t id = 0;
  int64_t bag = 0;
  double weight = 1.0;
  double share = 0.0;
};

int64_t IdAt(const LookupInput& input, int64_t i) {
  if (input.key_type == KeyType::kInt32) return static_cast<const int32_t*>(input.ids)[i];
  if (input.key_type == KeyType::kUint32) return static_cast<const uint32_t*>(input.ids)[i];
  return static_cast<const int64_t*>(input.ids)[i];
}

Status CheckSplits(const SketchTable& table, const LookupInput& input) {
  const int64_t* splits = input.row_splits;
  if (splits[0] != 0) return table.Invalid("row_splits begin with ", splits[0], ", not 0");
  for (int64_t b = 1; b <= input.num_bags; ++b) {
    if (splits[b] >= splits[b - 1]) continue;
    return table.Invalid("row_splits fall from ", splits[b - 1], " to ", splits[b], " at position ", b);
  }
  if (splits[input.num_bags] == input.num_ids) return OkStatus();
  return table.Invalid("row_splits end with ", splits[input.num_bags], " for ", input.num_ids, " ids");
}

Status Occurrences(const SketchTable& table, const LookupSpec& spec, const LookupInput& input,
                   std::vector<Occurrence>* result) {
  if (spec.layout == IdLayout::kRagged) SOK_RETURN_IF_ERROR(CheckSplits(table, input));
  std::map<int64_t, double> divisors;
  for (int64_t i = 0, bag = 0; i < input.num_ids; ++i) {
    if (spec.layout == IdLayout::kDense) bag = i;
    if (spec.layout == IdLayout::kSparse) bag = input.indices[2 * i];
    while (spec.layout == IdLayout::kRagged && input.row_splits[bag + 1] <= i) ++bag;
    if (spec.pooled() && (bag < 0 || bag >= input.num_bags)) {
      return table.Invalid("index ", i, " is in row ", bag, " of ", input.num_bags);
    }
    const double weight = spec.weighted ? input.weights[i] : 1.0;
    if (!std::isfinite(weight)) return table.Invalid("weight ", i, " is ", weight);
    if (spec.positive_weights_only && weight <= 0) continue;
    result->push_back({IdAt(input, i), bag, weight});
    divisors[bag] += spec.combiner == Combiner::kMean ? weight : weight * weight;
  }
  for (Occurrence& o : *result) {
    const double divisor = spec.combiner == Combiner::kSum    ? 1.0
                           : spec.combiner == Combiner::kMean ? divisors[o.bag]
                                                              : std::sqrt(divisors[o.bag]);
    o.share = divisor == 0 ? 0.0 : o.weight / divisor;
  }
  return OkStatus();
}

class SketchPlan final : public GroupPlan {
 public:
  using GroupPlan::GroupPlan;
  int64_t trained_rows(int t) const override { return static_cast<int64_t>(references[t].size()); }
  Status WriteReferences(const EngineContext& /*context*/, int t, int64_t* out) const override {
    for (const auto& entry : references[t]) *out++ = entry.second;
    return OkStatus();
  }

  std::vector<int> table_of;                           // by lookup
  std::vector<std::vector<Occurrence>> occurrences;    // by lookup
  std::vector<std::map<int64_t, int64_t>> references;  // by table, of trained ids
  std::vector<int64_t> dims;                           // by table
};

void WriteOutput(const SketchTable& table, const std::vector<Occurrence>& occurrences, int64_t rows,
                 const OutputRows& output) {
  const int64_t dim = table.options().dim;
  std::vector<double> sums(rows * dim, 0.0);
  for (const Occurrence& o : occurrences) {
    const std::vector<float> row = table.Row(o.id);
    for (int64_t c = 0; c < dim; ++c) sums[o.bag * dim + c] += o.share * row[c];
  }
  for (int64_t i = 0; i < rows * dim; ++i) {
    output.data[i / dim * output.stride + i % dim] = static_cast<float>(sums[i]);
  }
}

class SketchEngine final : public Engine {
 public:
  explicit SketchEngine(std::string name) : name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  StatusOr<std::shared_ptr<EngineTable>> MakeTable(const EngineContext& /*context*/,
                                                   TableOptions options) override {
    SOK_RETURN_IF_ERROR(CheckOptions(options));
    if (!options.use_hashtable) return NotOffered("tables without hashing");
    return std::shared_ptr<EngineTable>(std::make_shared<SketchTable>(this, std::move(options)));
  }
  std::unique_ptr<GroupPlan> NewPlan() override { return std::make_unique<SketchPlan>(this); }
  std::unique_ptr<EngineScratch> NewScratch() override { return std::make_unique<EngineScratch>(this); }

  Status Lookup(const EngineContext& /*context*/, const GroupBatch& batch, GroupPlan* group_plan,
                Span<const OutputRows> outputs, EngineScratch* /*scratch*/) override {
    SketchPlan& plan = *static_cast<SketchPlan*>(group_plan);
    plan.table_of.clear();
    plan.dims.clear();
    plan.occurrences.assign(batch.specs.size(), {});
    plan.references.assign(batch.tables.size(), {});
    std::vector<std::vector<int64_t>> ids(batch.tables.size());
    for (int64_t l = 0; l < batch.specs.size(); ++l) {
      const int t = batch.specs[l].table;
      plan.table_of.push_back(t);
      SOK_RETURN_IF_ERROR(
          Occurrences(TableOf(batch.tables[t]), batch.specs[l], batch.inputs[l], &plan.occurrences[l]));
      for (const Occurrence& o : plan.occurrences[l]) ids[t].push_back(o.id);
    }
    for (int64_t t = 0; t < batch.tables.size(); ++t) {
      plan.dims.push_back(batch.tables[t]->options().dim);
      if (!batch.training) continue;
      SOK_RETURN_IF_ERROR(TableOf(batch.tables[t]).FindOrMake(ids[t], &plan.references[t]));
    }
    for (int64_t l = 0; l < batch.specs.size(); ++l) {
      const LookupInput& input = batch.inputs[l];
      WriteOutput(TableOf(batch.tables[plan.table_of[l]]), plan.occurrences[l],
                  batch.specs[l].pooled() ? input.num_bags : input.num_ids, outputs[l]);
    }
    return OkStatus();
  }

  Status Backward(const EngineContext& /*context*/, const GroupPlan& group_plan,
                  Span<const GradientRows> gradients, Span<float* const> grads_out,
                  EngineScratch* /*scratch*/) override {
    const SketchPlan& plan = static_cast<const SketchPlan&>(group_plan);
    for (int64_t t = 0; t < grads_out.size(); ++t) {
      std::map<int64_t, std::vector<double>> sums;
      for (const auto& entry : plan.references[t]) sums[entry.first].assign(plan.dims[t], 0.0);
      for (size_t l = 0; l < plan.occurrences.size(); ++l) {
        if (plan.table_of[l] != t) continue;
        for (const Occurrence& o : plan.occurrences[l]) {
          const auto sum = sums.find(o.id);
          if (sum == sums.end()) continue;  // a lookup that only reads trains nothing
          const float* const gradient = gradients[l].data + o.bag * gradients[l].stride;
          for (int64_t c = 0; c < plan.dims[t]; ++c) sum->second[c] += o.share * gradient[c];
        }
      }
      float* next = grads_out[t];
      if (next == nullptr) continue;
      for (const auto& entry : sums) next = std::copy(entry.second.begin(), entry.second.end(), next);
    }
    return OkStatus();
  }

 private:
  const std::string name_;
};

}  // namespace

std::unique_ptr<Engine> MakeSketchEngine(std::string name) {
  return std::make_unique<SketchEngine>(std::move(name));
}

}  // namespace sok
