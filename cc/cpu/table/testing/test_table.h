// Helpers with which tests make and read tables.
#ifndef SOK_CC_CPU_TABLE_TESTING_TEST_TABLE_H_
#define SOK_CC_CPU_TABLE_TESTING_TEST_TABLE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/cpu/table/table.h"

namespace sok {

inline TableOptions TestOptions(int64_t dim, int64_t capacity = 0) {
  TableOptions options;
  options.name = "table";
  options.dim = dim;
  options.capacity = capacity;
  options.initializer = {InitializerKind::kUniform, -1.0f, 1.0f, 17};
  return options;
}

inline std::unique_ptr<Table> MakeTestTable(const TableOptions& options) {
  InlineExecutor executor;
  StatusOr<std::unique_ptr<Table>> table = Table::Create(executor, options);
  EXPECT_TRUE(table.ok()) << table.status().message();
  return std::move(table.value());
}

// The rows of `ids`, inserted if absent.
inline std::vector<int64_t> RowsOf(Table* table, const std::vector<int64_t>& ids) {
  InlineExecutor executor;
  std::vector<int64_t> rows(ids.size());
  const Status status = table->FindOrMake(executor, ids, Span<int64_t>(rows));
  EXPECT_TRUE(status.ok()) << status.message();
  return rows;
}

// The references that a training lookup returns for distinct ids, of which ids[i] occurs counts[i] times.
inline std::vector<int64_t> TrainingLookup(Table* table, const std::vector<int64_t>& ids,
                                           const std::vector<int64_t>& counts) {
  InlineExecutor executor;
  std::vector<int64_t> rows(ids.size());
  std::vector<int64_t> read_default;
  const Status status = table->FindForTraining(executor, ids, counts, Span<int64_t>(rows), &read_default);
  EXPECT_TRUE(status.ok()) << status.message();
  table->MakeReferences(Span<int64_t>(rows));
  return rows;
}

inline std::vector<int64_t> FoundRows(const Table& table, const std::vector<int64_t>& ids) {
  InlineExecutor executor;
  std::vector<int64_t> rows(ids.size());
  EXPECT_TRUE(table.Find(executor, ids, Span<int64_t>(rows)).ok());
  return rows;
}

inline std::vector<float> WeightsOf(const Table& table, int64_t row) {
  return std::vector<float>(table.weights(row), table.weights(row) + table.options().dim);
}

inline std::vector<float> InitialWeights(const Table& table, int64_t id) {
  std::vector<float> row(table.options().dim);
  table.InitialRow(id, Span<float>(row));
  return row;
}

inline void ExpectMentions(const Status& status, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " in: " << status.message();
  }
}

}  // namespace sok

#endif  // SOK_CC_CPU_TABLE_TESTING_TEST_TABLE_H_
