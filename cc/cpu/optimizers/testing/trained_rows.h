#ifndef SOK_CC_CPU_OPTIMIZERS_TESTING_TRAINED_ROWS_H_
#define SOK_CC_CPU_OPTIMIZERS_TESTING_TRAINED_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/cpu/store/row_store.h"

namespace sok {

// For tests: a few rows and the optimizer that trains them, set up as in a table. The initial weights differ
// in every element.
class TrainedRows {
 public:
  TrainedRows(std::string_view optimizer, int64_t rows, int64_t dim, Span<const float> hyper)
      : store_(dim), rows_(rows), optimizer_(std::move(MakeOptimizer(optimizer).value())) {
    status_ = store_.Reserve(rows);
    if (status_.ok()) status_ = store_.SetSlots(optimizer_->Slots(dim, hyper));
    if (status_.ok()) status_ = optimizer_->Reserve(rows);
    if (!status_.ok()) return;
    for (int64_t row = 0; row < rows; ++row) {
      optimizer_->OnNewRow(row);
      for (int64_t c = 0; c < dim; ++c) {
        store_.weights(row)[c] = 0.01f * static_cast<float>(row * dim + c + 1) - 0.3f;
      }
    }
  }

  // The first error so far.
  const Status& status() const { return status_; }
  Optimizer& optimizer() { return *optimizer_; }
  RowStore& store() { return store_; }
  const RowStore& store() const { return store_; }
  int64_t size() const { return rows_; }

  void Step(Executor& executor, Span<const float> hyper, const std::vector<int64_t>& rows,
            const std::vector<float>& grads) {
    const Status status =
        optimizer_->Apply(executor, hyper, rows, StoredRowGradients(grads.data(), store_.dim()), &store_);
    if (status_.ok()) status_ = status;
  }

  void CatchUp(Executor& executor, const std::vector<int64_t>& rows) {
    optimizer_->CatchUp(executor, rows, &store_);
  }

  std::vector<int64_t> AllRows() const {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < rows_; ++row) rows.push_back(row);
    return rows;
  }

  // Weights and slots of a row as they are in memory, without a catch-up.
  std::vector<float> Record(int64_t row) const {
    int64_t floats = store_.dim();
    for (int k = 0; k < store_.num_slots(); ++k) floats += store_.slot_spec(k).width;
    return std::vector<float>(store_.weights(row), store_.weights(row) + floats);
  }
  std::vector<std::vector<float>> Records() const {
    std::vector<std::vector<float>> records;
    for (int64_t row = 0; row < rows_; ++row) records.push_back(Record(row));
    return records;
  }

 private:
  RowStore store_;
  int64_t rows_;
  std::unique_ptr<Optimizer> optimizer_;
  Status status_;
};

// The rows that a step touches, and their gradients.
struct RandomStep {
  std::vector<int64_t> rows;  // distinct, in random order
  std::vector<float> grads;   // [rows, dim]
};

// Each of `rows` rows is touched with the given probability.
inline RandomStep MakeRandomStep(int64_t rows, int64_t dim, double probability, std::mt19937_64* random) {
  RandomStep step;
  std::bernoulli_distribution touched(probability);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  for (int64_t row = 0; row < rows; ++row) {
    if (touched(*random)) step.rows.push_back(row);
  }
  std::shuffle(step.rows.begin(), step.rows.end(), *random);
  for (size_t i = 0; i < step.rows.size() * static_cast<size_t>(dim); ++i) {
    step.grads.push_back(normal(*random));
  }
  return step;
}

}  // namespace sok

#endif  // SOK_CC_CPU_OPTIMIZERS_TESTING_TRAINED_ROWS_H_
