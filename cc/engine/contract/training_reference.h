// Slow, obvious training of tables: a reference for the contract suites.
#ifndef SOK_CC_ENGINE_CONTRACT_TRAINING_REFERENCE_H_
#define SOK_CC_ENGINE_CONTRACT_TRAINING_REFERENCE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cc/engine/contract/contract_batch.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/lookup_reference.h"

namespace sok {

// Hyper-parameters of an optimizer, in its order, for step number `step` of a test. The learning rate differs
// from step to step.
std::vector<float> SampleHyper(const std::string& optimizer, uint32_t step);

// Tables as maps of rows in double precision, trained by each rule's own Reference.
class TrainingReference {
 public:
  explicit TrainingReference(const std::vector<TableOptions>& options)
      : options_(options), rows_(options.size()) {}

  // A training lookup of the batch, and a step with the gradients of its outputs.
  void Step(const ContractBatch& batch, const OutputValues& gradients, const std::string& optimizer,
            const std::vector<float>& hyper);
  // Expects that the group has the reference's rows, and reads initial rows for other keys.
  void ExpectRows(ContractGroup& group, double tolerance) const;
  void ExpectWeightGradients(const ContractBatch& batch, const OutputValues& gradients,
                             const OutputValues& actual) const;

 private:
  struct Row {
    std::vector<double> weights;
    std::vector<std::vector<double>> slots;
  };
  // The row of a new key.
  Row NewRow(size_t t, int64_t key, const std::string& optimizer, const std::vector<float>& hyper) const;
  std::vector<ReferenceRows> SumGradients(const ContractBatch& batch, const OutputValues& gradients) const;

  std::vector<TableOptions> options_;
  std::vector<std::map<int64_t, Row>> rows_;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_TRAINING_REFERENCE_H_
