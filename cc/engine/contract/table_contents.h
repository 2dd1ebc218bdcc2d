// All that a table of any engine holds, for comparisons.
#ifndef SOK_CC_ENGINE_CONTRACT_TABLE_CONTENTS_H_
#define SOK_CC_ENGINE_CONTRACT_TABLE_CONTENTS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/engine/held_table.h"
#include "cc/optimizers/rule_info.h"

namespace sok {

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

#endif  // SOK_CC_ENGINE_CONTRACT_TABLE_CONTENTS_H_
