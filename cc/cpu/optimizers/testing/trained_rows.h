#ifndef SOK_CC_CPU_OPTIMIZERS_TESTING_TRAINED_ROWS_H_
#define SOK_CC_CPU_OPTIMIZERS_TESTING_TRAINED_ROWS_H_

#include <algorithm>
#include <cmath>
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

// Adam on a dense variable with sparse gradients, as tf.compat.v1.train.AdamOptimizer runs it: every step
// decays the moments of every row and moves every row. `T` is double for the true result, and float for
// TensorFlow's result with its rounding and overflow.
template <typename T>
class DenseAdam {
 public:
  DenseAdam(int64_t rows, int64_t dim) : dim_(dim), w(rows * dim), m(rows * dim), v(rows * dim) {}

  // One step; rows outside `touched` have a gradient of zero. grads is [touched, dim].
  void Step(float alpha, float beta1, float beta2, float epsilon, const std::vector<int64_t>& touched,
            const std::vector<float>& grads) {
    std::vector<T> dense(w.size(), T(0));
    for (size_t i = 0; i < touched.size(); ++i) {
      for (int64_t c = 0; c < dim_; ++c) dense[touched[i] * dim_ + c] = grads[i * dim_ + c];
    }
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = m[i] * T(beta1) + dense[i] * (T(1) - T(beta1));
      v[i] = v[i] * T(beta2) + (T(1) - T(beta2)) * dense[i] * dense[i];
      w[i] -= m[i] * T(alpha) / (std::sqrt(v[i]) + T(epsilon));
    }
  }

 private:
  int64_t dim_;

 public:
  std::vector<T> w, m, v;  // [rows, dim]
};

}  // namespace sok

#endif  // SOK_CC_CPU_OPTIMIZERS_TESTING_TRAINED_ROWS_H_
