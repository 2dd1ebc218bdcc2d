#ifndef SOK_CC_CPU_DENSE_TABLES_TRAIN_ROWS_H_
#define SOK_CC_CPU_DENSE_TABLES_TRAIN_ROWS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/dedup/dedup.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/optimizers/rule_info.h"

namespace sok {

// Finds the distinct rows of a batch, with the results and errors of Deduplicator. It knows the number of
// rows of the table: if that is small compared with the batch, an array indexed by row is faster than a hash
// table.
//
// Keeps its working memory from one Run to the next. Not thread-safe.
class RowDeduplicator {
 public:
  // Like Deduplicator::Run. Rows should be in [0, limit); others are allowed and slower.
  Status Run(Executor& executor, Span<const int64_t> rows, int64_t limit, std::vector<int64_t>* unique,
             Span<int32_t> inverse);

 private:
  Status RunByPlaces(Span<const int64_t> rows, int64_t limit, std::vector<int64_t>* unique,
                     Span<int32_t> inverse);

  // For each row of the table, 1 + its position among the distinct rows; all zero between calls.
  std::vector<int32_t> places_;
  std::vector<int64_t> distinct_;
  Deduplicator by_hash_;
};

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

#endif  // SOK_CC_CPU_DENSE_TABLES_TRAIN_ROWS_H_
