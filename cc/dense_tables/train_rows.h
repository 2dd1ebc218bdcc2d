#ifndef SOK_CC_DENSE_TABLES_TRAIN_ROWS_H_
#define SOK_CC_DENSE_TABLES_TRAIN_ROWS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/dedup/segments.h"
#include "cc/dense_tables/row_dedup.h"
#include "cc/optimizers/row_gradients.h"
#include "cc/optimizers/rule_info.h"

namespace sok {

// A table whose weights and slots are matrices that someone else owns, such as TensorFlow variables:
// row-major, [rows, dim] each. The matrices do not overlap.
struct DenseTable {
  int64_t rows = 0;
  int64_t dim = 0;
  float* weights = nullptr;
  Span<float* const> slots;  // those of the rule, in its order
};

// A rule of cc/optimizers that trains dense tables.
struct DenseRule {
  const RuleInfo* info = nullptr;
  // The step, for distinct rows in range and hyper-parameters that were checked.
  void (*train)(Executor& executor, const float* hyper, const DenseTable& table, Span<const int64_t> rows,
                const RowGradients& gradients) = nullptr;
};

// The rule of that name. InvalidArgument if there is none, if its steps change rows without a gradient, or if
// it has a slot of one number per row or needs the norm of a slot: the message says which.
StatusOr<DenseRule> FindDenseRule(std::string_view name);

// Working memory of TrainRows, kept from one step to the next. Not thread-safe.
struct TrainRowsScratch {
  RowDeduplicator deduplicator;
  std::vector<int64_t> distinct;
  std::vector<int32_t> inverse;
  Segments segments;
  std::vector<const float*> gradient_rows;
  std::vector<float> sums;
};

// Takes one step on the rows numbered `rows`, which may occur several times: `gradients`, row-major
// [rows.size(), table.dim], are added up per row first, in the order of the occurrences. Gives the same bits
// as an engine's table with the same rule, on any number of threads. Threads work on different rows; nobody
// else may use the table at the same time.
//
// InvalidArgument, and nothing has changed, for hyper-parameters that the rule refuses, for a number of slots
// that is not the rule's, and for a row that is not in [0, table.rows). ResourceExhausted if memory runs out.
Status TrainRows(Executor& executor, const DenseRule& rule, Span<const float> hyper, const DenseTable& table,
                 Span<const int64_t> rows, const float* gradients, TrainRowsScratch* scratch);

}  // namespace sok

#endif  // SOK_CC_DENSE_TABLES_TRAIN_ROWS_H_
