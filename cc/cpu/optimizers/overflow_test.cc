// Gradients whose squares overflow float, and infinite moments: the result must have the same numbers, inf
// and NaN as TensorFlow's operations, step by step.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cc/base/executor.h"
#include "cc/cpu/optimizers/testing/adam_reference.h"
#include "cc/cpu/optimizers/testing/trained_rows.h"

namespace sok {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const std::vector<float> kSpikes = {1.0f,  1e18f,  1e19f, 1e20f, 1e21f, 1e30f,
                                    3e38f, -3e38f, kInf,  -kInf, kNan};

struct Betas {
  float beta1;
  float beta2;
};

// Series of four and of eight terms, and steps taken one by one, with powers that vanish soon and later.
constexpr Betas kBetas[] = {{0.9f, 0.999f}, {0.9f, 0.98f}, {0.9f, 0.9f}, {0.5f, 0.25f}, {0.0f, 0.999f}};
// 0.9^gap is below the normal floats from a gap of about 830 on.
constexpr int64_t kGaps[] = {1, 10, 200, 900, 2500};

void ExpectSame(float actual, float expected, double tolerance) {
  if (std::isfinite(expected)) {
    EXPECT_NEAR(actual, expected, tolerance * (1e-3 + std::fabs(expected)));
  } else if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << actual;
  } else {
    EXPECT_EQ(actual, expected);
  }
}

// A row trained with exact Adam, and the same row with dense Adam.
class Twins {
 public:
  Twins(Betas betas, float epsilon, int64_t dim)
      : dim_(dim),
        hyper_({0.01f, betas.beta1, betas.beta2, epsilon}),
        rows_("adam", 1, dim, hyper_),
        dense_(1, dim) {
    for (int64_t c = 0; c < dim; ++c) rows_.store().weights(0)[c] = dense_.w[static_cast<size_t>(c)] = 0.5f;
  }

  // A step with these gradients; without a gradient if `grads` is empty.
  void Step(const std::vector<float>& grads) {
    const std::vector<int64_t> touched = grads.empty() ? std::vector<int64_t>() : std::vector<int64_t>{0};
    rows_.Step(executor_, hyper_, touched, grads);
    dense_.Step(hyper_[0], hyper_[1], hyper_[2], hyper_[3], touched, grads);
  }

  void SetMoments(int64_t c, float m, float v) {
    const size_t i = static_cast<size_t>(c);
    rows_.store().slot(0, 0)[c] = dense_.m[i] = m;
    rows_.store().slot(0, 1)[c] = dense_.v[i] = v;
  }

  void CatchUp() { rows_.CatchUp(executor_, {0}); }

  void ExpectEqual() {
    CatchUp();
    ASSERT_TRUE(rows_.status().ok()) << rows_.status().message();
    for (int64_t c = 0; c < dim_; ++c) {
      SCOPED_TRACE(testing::Message()
                   << "element " << c << ", beta1 " << hyper_[1] << ", beta2 " << hyper_[2]);
      const size_t i = static_cast<size_t>(c);
      ExpectSame(rows_.store().weights(0)[c], dense_.w[i], 1e-4);
      ExpectSame(rows_.store().slot(0, 0)[c], dense_.m[i], 1e-3);
      ExpectSame(rows_.store().slot(0, 1)[c], dense_.v[i], 1e-3);
    }
  }

 private:
  int64_t dim_;
  std::vector<float> hyper_;
  InlineExecutor executor_;
  TrainedRows rows_;
  DenseAdam<float> dense_;
};

TEST(Overflow, ExactAdamAfterASpike) {
  const int64_t dim = static_cast<int64_t>(kSpikes.size());
  const std::vector<float> ones(kSpikes.size(), 1.0f);
  for (const Betas betas : kBetas) {
    for (const int64_t gap : kGaps) {
      SCOPED_TRACE(gap);
      Twins twins(betas, 1e-8f, dim);
      twins.Step(ones);
      twins.Step(kSpikes);
      for (int64_t t = 0; t < gap; ++t) twins.Step({});
      twins.Step(ones);
      twins.Step(ones);
      twins.ExpectEqual();
    }
  }
}

TEST(Overflow, ExactAdamContinuesFromInfiniteAndNanMoments) {
  const std::vector<std::vector<float>> moments = {{kInf, 1.0f},  {-kInf, 1.0f}, {1.0f, kInf}, {0.0f, kInf},
                                                   {kInf, kInf},  {kNan, 1.0f},  {1.0f, kNan}, {0.0f, kNan},
                                                   {1e30f, kInf}, {1.0f, 1.0f},  {0.0f, 0.0f}};
  const int64_t dim = static_cast<int64_t>(moments.size());
  for (const Betas betas : kBetas) {
    for (const int64_t gap : kGaps) {
      SCOPED_TRACE(gap);
      Twins twins(betas, 1e-8f, dim);
      twins.Step({});
      twins.CatchUp();
      for (int64_t c = 0; c < dim; ++c) twins.SetMoments(c, moments[c][0], moments[c][1]);
      for (int64_t t = 0; t < gap; ++t) twins.Step({});
      twins.ExpectEqual();
      twins.Step(std::vector<float>(moments.size(), 0.5f));
      twins.ExpectEqual();
    }
  }
}

TEST(Overflow, ExactAdamWithEpsilonZero) {
  // An element with two gradients, one with one gradient, and one without any.
  for (const Betas betas : kBetas) {
    for (const int64_t gap : {1, 10, 50}) {
      SCOPED_TRACE(gap);
      Twins twins(betas, 0.0f, 3);
      twins.Step({1.0f, 0.5f, 0.0f});
      twins.Step({0.3f, 0.0f, 0.0f});
      for (int64_t t = 0; t < gap; ++t) twins.Step({});
      twins.ExpectEqual();
    }
  }
}

TEST(Overflow, KerasRmspropKeepsInfThroughAnyGap) {
  InlineExecutor executor;
  const std::vector<float> hyper = {0.01f, 0.9f, 1e-7f};
  for (const char* name : {"keras_rmsprop", "keras_rmsprop_centered"}) {
    for (const int64_t gap : kGaps) {
      for (const bool read_before : {false, true}) {
        TrainedRows rows(name, 1, 2, hyper);
        rows.Step(executor, hyper, {0}, {1e20f, 1.0f});
        const std::vector<float> before = rows.Record(0);
        for (int64_t t = 0; t < gap; ++t) rows.Step(executor, hyper, {}, {});
        if (read_before) rows.CatchUp(executor, {0});
        rows.Step(executor, hyper, {0}, {1.0f, 1.0f});
        // g^2 is inf, so the element does not move.
        EXPECT_EQ(rows.Record(0)[0], before[0]) << name << " " << gap;
        EXPECT_EQ(rows.Record(0)[2], kInf) << name << " " << gap;
        EXPECT_NE(rows.Record(0)[1], before[1]) << name << " " << gap;
        EXPECT_TRUE(std::isfinite(rows.Record(0)[3])) << name << " " << gap;
      }
    }
  }
}

TEST(Overflow, FtrlGivesNanInsteadOfZero) {
  InlineExecutor executor;
  for (const float power : {-0.5f, -0.7f}) {
    for (const float l1 : {0.0f, 0.1f}) {
      const std::vector<float> hyper = {0.1f, power, 0.1f, l1, 0.0f, 0.0f, 0.0f};
      TrainedRows rows("ftrl", 1, 3, hyper);
      rows.Step(executor, hyper, {0}, {1e30f, kNan, 1.0f});
      rows.Step(executor, hyper, {0}, {1.0f, 1.0f, 1.0f});
      EXPECT_TRUE(std::isnan(rows.Record(0)[0]));
      EXPECT_TRUE(std::isnan(rows.Record(0)[1]));
      EXPECT_TRUE(std::isfinite(rows.Record(0)[2]));
    }
  }
}

// The linear slot of a checkpoint may be inf, and so the weight. Without shrinkage the weight must not become
// NaN.
TEST(Overflow, FtrlWithoutShrinkageKeepsInf) {
  InlineExecutor executor;
  const std::vector<float> hyper = {0.1f, -0.5f, 0.1f, 0.1f, 0.0f, 0.0f, 0.0f};
  TrainedRows rows("ftrl", 1, 1, hyper);
  rows.store().slot(0, 1)[0] = kInf;
  for (int t = 0; t < 3; ++t) {
    rows.Step(executor, hyper, {0}, {1.0f});
    EXPECT_EQ(rows.Record(0)[0], -kInf);
    EXPECT_EQ(rows.Record(0)[2], kInf);
  }
}

// learning_rate * g overflows, but TensorFlow divides by the root first.
TEST(Overflow, RmspropDividesBeforeItMultiplies) {
  InlineExecutor executor;
  const std::vector<float> hyper = {30.0f, 0.9f, 0.5f, 1e-10f, 1.0f};
  TrainedRows rows("rmsprop", 1, 1, hyper);
  const float before = rows.Record(0)[0];
  rows.Step(executor, hyper, {0}, {1e38f});
  EXPECT_EQ(rows.Record(0)[0], before);
}

}  // namespace
}  // namespace sok
