// Exact Adam over long random training, compared with dense Adam in double and in single precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/optimizers/testing/adam_reference.h"
#include "cc/cpu/optimizers/testing/trained_rows.h"

namespace sok {
namespace {

float Alpha(int t, float beta1, float beta2) {
  // Warm-up over 40 steps, then decay, and from step 201 on ten times the rate; with TensorFlow's bias
  // correction.
  double rate = t <= 40 ? 1e-4 * t : 4e-3 * std::pow(0.99, t - 40);
  if (t > 200) rate *= 10;
  return static_cast<float>(rate * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t)));
}

// The largest error of a weight against `expected` [rows, dim], relative to the expected weight or, for
// weights near zero, to a typical move.
template <typename T>
double Error(TrainedRows& rows, int64_t dim, const std::vector<T>& expected) {
  double worst = 0.0;
  for (int64_t row = 0; row < rows.size(); ++row) {
    for (int64_t c = 0; c < dim; ++c) {
      const double truth = expected[static_cast<size_t>(row * dim + c)];
      worst = std::max(worst, std::fabs(rows.store().weights(row)[c] - truth) / (0.1 + std::fabs(truth)));
    }
  }
  return worst;
}

struct Outcome {
  double to_double;
  double to_float;
};

// 300 steps over rows that are touched with probabilities from 1/2 down to 1/200; some reads in between.
Outcome Train(float beta1, float beta2, float epsilon, int64_t dim, bool read_between) {
  constexpr int64_t kRows = 40;
  ThreadPool pool(2, /*min_block_ns=*/0);
  TrainedRows rows("adam", kRows, dim, std::vector<float>{0.0f, beta1, beta2, epsilon});
  DenseAdam<double> truth(kRows, dim);
  DenseAdam<float> tensorflow(kRows, dim);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t c = 0; c < dim; ++c) {
      truth.w[static_cast<size_t>(row * dim + c)] = rows.store().weights(row)[c];
      tensorflow.w[static_cast<size_t>(row * dim + c)] = rows.store().weights(row)[c];
    }
  }
  std::mt19937_64 random(static_cast<uint64_t>(dim) + 1);
  for (int t = 1; t <= 300; ++t) {
    RandomStep step;
    for (int part = 0; part < 4; ++part) {
      const double probability = 0.5 / std::pow(4.7, part);
      RandomStep some = MakeRandomStep(kRows / 4, dim, probability, &random);
      for (int64_t row : some.rows) step.rows.push_back(row + part * kRows / 4);
      step.grads.insert(step.grads.end(), some.grads.begin(), some.grads.end());
    }
    const float alpha = Alpha(t, beta1, beta2);
    rows.Step(pool, std::vector<float>{alpha, beta1, beta2, epsilon}, step.rows, step.grads);
    truth.Step(alpha, beta1, beta2, epsilon, step.rows, step.grads);
    tensorflow.Step(alpha, beta1, beta2, epsilon, step.rows, step.grads);
    if (read_between) rows.CatchUp(pool, MakeRandomStep(kRows, dim, 0.1, &random).rows);
  }
  EXPECT_TRUE(rows.status().ok()) << rows.status().message();
  rows.CatchUp(pool, rows.AllRows());
  return {Error(rows, dim, truth.w), Error(rows, dim, tensorflow.w)};
}

TEST(ExactAdamTraining, FollowsDenseAdamForEveryDim) {
  for (int64_t dim : {1, 2, 3, 7, 16, 63, 64, 129, 1025}) {
    const Outcome outcome = Train(0.9f, 0.999f, 1e-8f, dim, /*read_between=*/true);
    EXPECT_LT(outcome.to_double, 4e-6) << dim;
    EXPECT_LT(outcome.to_float, 6e-6) << dim;
  }
}

TEST(ExactAdamTraining, FollowsDenseAdamForOtherConstants) {
  struct Constants {
    float beta1;
    float beta2;
    float epsilon;
  };
  for (const Constants& k :
       {Constants{0.9f, 0.999f, 1e-3f}, Constants{0.9f, 0.999f, 10.0f}, Constants{0.9f, 0.98f, 1e-9f},
        Constants{0.9f, 0.9f, 1e-8f}, Constants{0.0f, 0.999f, 1e-8f}, Constants{0.5f, 0.25f, 1e-8f}}) {
    const Outcome outcome = Train(k.beta1, k.beta2, k.epsilon, 5, /*read_between=*/true);
    EXPECT_LT(outcome.to_double, 4e-6) << k.beta1 << " " << k.beta2 << " " << k.epsilon;
    EXPECT_LT(outcome.to_float, 6e-6) << k.beta1 << " " << k.beta2 << " " << k.epsilon;
  }
}

}  // namespace
}  // namespace sok
