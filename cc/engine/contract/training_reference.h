// Slow, obvious training of tables: a reference for the contract suites.
#ifndef SOK_CC_ENGINE_CONTRACT_TRAINING_REFERENCE_H_
#define SOK_CC_ENGINE_CONTRACT_TRAINING_REFERENCE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cc/engine/contract/contract_batch.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/lookup_reference.h"
#include "cc/engine/engine.h"
#include "cc/engine/held_table.h"
#include "cc/optimizers/rule_info.h"

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

// All that a table of any engine holds, for comparisons.

// The contents of a table, in the order of row numbers.
struct TableContents {
  std::vector<int64_t> numbers;
  std::vector<int64_t> keys;
  std::vector<float> records;
  std::vector<int64_t> columns;

  bool operator==(const TableContents& other) const {
    return numbers == other.numbers && keys == other.keys && records == other.records &&
           columns == other.columns;
  }
};

// The floats of a record of the table: its weights, and the slots of its optimizer if `parts` has them.
inline int64_t RecordWidth(const HeldTable& held, const RowParts& parts) {
  const int64_t dim = held.options().dim;
  const auto& optimizer = held.state().optimizer;
  int64_t width = dim;
  if (!parts.slots || !optimizer.has_value()) return width;
  for (const RuleInfo* rule : KnownRules()) {
    if (rule->name != optimizer->name) continue;
    for (const RuleSlot& slot : rule->slots) width += slot.one_per_row ? 1 : dim;
  }
  return width;
}

// With up_to_date, after the steps that the optimizer has postponed, and without the columns that depend on
// how often the table was read.
inline TableContents ContentsOf(EngineTable* table, const EngineContext& context, bool up_to_date = false) {
  TableContents contents;
  const auto held = table->Hold(context);
  EXPECT_TRUE(held.ok());
  RowsToRead what;
  what.up_to_date = up_to_date;
  what.parts = held.value()->state().parts;
  if (up_to_date) what.parts.last_current = what.parts.last_used = false;
  const int64_t width = RecordWidth(*held.value(), what.parts);
  const Status status = held.value()->ReadRows(what, [&](const RowPiece& piece) {
    contents.numbers.insert(contents.numbers.end(), piece.numbers.begin(), piece.numbers.end());
    contents.keys.insert(contents.keys.end(), piece.keys.begin(), piece.keys.end());
    for (const float* record : piece.records) {
      contents.records.insert(contents.records.end(), record, record + width);
    }
    for (const Span<const int64_t> column :
         {piece.frequency, piece.last_step, piece.last_used, piece.last_current}) {
      contents.columns.insert(contents.columns.end(), column.begin(), column.end());
    }
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return contents;
}

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_TRAINING_REFERENCE_H_
