#include "cc/engine/contract/training_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cc/optimizers/rule_info.h"

namespace sok {
namespace {

const RuleInfo& RuleOf(const std::string& optimizer) {
  for (const RuleInfo* rule : KnownRules()) {
    if (rule->name == optimizer) return *rule;
  }
  ADD_FAILURE() << "there is no optimizer " << optimizer;
  return *KnownRules().front();
}

}  // namespace

std::vector<float> SampleHyper(const std::string& optimizer, uint32_t step) {
  std::vector<float> hyper = RuleOf(optimizer).samples.front();
  hyper[0] *= 1.0f + 0.1f * static_cast<float>(step % 4);
  return hyper;
}

std::vector<ReferenceRows> TrainingReference::SumGradients(const ContractBatch& batch,
                                                           const OutputValues& gradients) const {
  std::vector<ReferenceRows> sums(options_.size());
  for (size_t l = 0; l < batch.size(); ++l) {
    const ContractLookup& lookup = batch[l];
    const size_t t = static_cast<size_t>(lookup.spec.table);
    const size_t dim = static_cast<size_t>(options_[t].dim);
    for (size_t b = 0; b < lookup.bags.size(); ++b) {
      const float* gradient = gradients[l].data() + b * dim;
      ReferenceBackward(ReferenceKept(lookup.bags[b], lookup.spec.positive_weights_only),
                        lookup.spec.combiner, std::vector<double>(gradient, gradient + dim), &sums[t]);
    }
  }
  return sums;
}

void TrainingReference::Step(const ContractBatch& batch, const OutputValues& gradients,
                             const std::string& optimizer, const std::vector<float>& hyper) {
  const RuleInfo& rule = RuleOf(optimizer);
  const std::vector<double> values(hyper.begin(), hyper.end());
  const std::vector<ReferenceRows> sums = SumGradients(batch, gradients);
  for (size_t t = 0; t < sums.size(); ++t) {
    const int64_t dim = options_[t].dim;
    for (const auto& entry : sums[t]) {
      if (rows_[t].count(entry.first) == 0) rows_[t][entry.first] = NewRow(t, entry.first, optimizer, hyper);
    }
    for (auto& [key, row] : rows_[t]) {
      const auto sum = sums[t].find(key);
      const bool touched = sum != sums[t].end();
      if (!touched && rule.untouched == UntouchedRows::kStay) continue;
      const std::vector<double> before = row.weights;
      const std::vector<double> gradient = touched ? sum->second : std::vector<double>(dim, 0.0);
      std::vector<double*> slots;
      for (std::vector<double>& slot : row.slots) slots.push_back(slot.data());
      rule.reference(values.data(), ReferenceRow{dim, gradient.data(), row.weights.data(), slots.data()});
      if (!touched && rule.untouched == UntouchedRows::kSlotsDecay) row.weights = before;
    }
  }
}

TrainingReference::Row TrainingReference::NewRow(size_t t, int64_t key, const std::string& optimizer,
                                                 const std::vector<float>& hyper) const {
  Row row;
  const std::vector<float> initial = ReferenceInitialRow(options_[t], key);
  row.weights.assign(initial.begin(), initial.end());
  for (const SlotSpec& slot : FindRule(optimizer).value()->Slots(options_[t].dim, hyper)) {
    row.slots.emplace_back(static_cast<size_t>(slot.width), slot.fill);
  }
  return row;
}

void TrainingReference::ExpectRows(ContractGroup& group, double tolerance) const {
  for (size_t t = 0; t < rows_.size(); ++t) {
    std::vector<int64_t> keys;
    for (const auto& entry : rows_[t]) keys.push_back(entry.first);
    for (const auto& [key, actual] : group.Rows(t, keys)) {
      const std::vector<double>& expected = rows_[t].at(key).weights;
      for (size_t c = 0; c < expected.size(); ++c) {
        ASSERT_NEAR(actual[c], expected[c], tolerance * std::max(1.0, std::abs(expected[c])))
            << "table " << t << ", key " << key << ", column " << c;
      }
    }
  }
}

void TrainingReference::ExpectWeightGradients(const ContractBatch& batch, const OutputValues& gradients,
                                              const OutputValues& actual) const {
  for (size_t l = 0; l < batch.size(); ++l) {
    const ContractLookup& lookup = batch[l];
    if (!lookup.spec.weighted) continue;
    const TableOptions& options = options_[lookup.spec.table];
    const size_t dim = static_cast<size_t>(options.dim);
    size_t next = 0;
    for (size_t b = 0; b < lookup.bags.size(); ++b) {
      const ReferenceBag& bag = lookup.bags[b];
      const ReferenceBag kept = ReferenceKept(bag, lookup.spec.positive_weights_only);
      ReferenceRows rows;
      for (const int64_t id : kept.ids) {
        const std::vector<float> row = ReferenceInitialRow(options, id);
        rows[id].assign(row.begin(), row.end());
      }
      const float* gradient = gradients[l].data() + b * dim;
      const std::vector<double> expected = ReferenceWeightGradients(
          rows, kept, lookup.spec.combiner, std::vector<double>(gradient, gradient + dim));
      size_t k = 0;
      for (size_t i = 0; i < bag.ids.size(); ++i) {
        const bool is_kept = !lookup.spec.positive_weights_only || bag.weights[i] > 0;
        const double value = is_kept ? expected[k++] : 0.0;
        ASSERT_NEAR(actual[l][next++], value, 2e-5 * static_cast<double>(dim))
            << "lookup " << l << ", bag " << b << ", weight " << i;
      }
    }
  }
}

}  // namespace sok
