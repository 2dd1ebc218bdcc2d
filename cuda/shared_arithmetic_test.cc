// Host and device give the same bits. The device is that of cuda/on_host, or a real one: the test compiled by
// nvcc is skipped if there is none.
#include "cuda/shared_arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <limits>
#include <random>
#include <vector>

#include "cc/base/hash.h"
#include "cc/cpu/optimizers/testing/trained_rows.h"
#include "cc/initializers/initializer.h"
#include "cc/optimizers/testing/rule_cases.h"
#include "cc/placement/placement.h"
#include "cuda/base/testing/device_array.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

constexpr int64_t kSize = 100003;

std::vector<int64_t> Keys() {
  std::vector<int64_t> keys(kSize);
  std::mt19937_64 random(1);
  for (int64_t& key : keys) key = static_cast<int64_t>(random());
  const int64_t special[] = {0,
                             -1,
                             1,
                             (int64_t{1} << 32) + 1,
                             std::numeric_limits<int64_t>::max(),
                             std::numeric_limits<int64_t>::min()};
  std::copy(std::begin(special), std::end(special), keys.begin());
  return keys;
}

void ExpectSameBits(const std::vector<float>& device, const std::vector<float>& host) {
  int64_t different = 0;
  for (int64_t i = 0; i < kSize; ++i) different += std::memcmp(&device[i], &host[i], sizeof(float)) != 0;
  EXPECT_EQ(different, 0);
}

TEST(SharedArithmeticTest, Mix64) {
  const std::vector<int64_t> keys = Keys();
  const std::vector<uint64_t> words(keys.begin(), keys.end());
  DeviceArray<uint64_t> input(words), output(std::vector<uint64_t>(kSize, 0));
  ASSERT_EQ(EvaluateMix64(nullptr, input.data(), output.data(), kSize), cudaSuccess);
  const std::vector<uint64_t> mixed = output.Fetch();
  for (int64_t i = 0; i < kSize; ++i) ASSERT_EQ(mixed[i], Mix64(words[i])) << words[i];
}

TEST(SharedArithmeticTest, OwnerOf) {
  const std::vector<int64_t> keys = Keys();
  DeviceArray<int64_t> input(keys);
  for (int ranks : {1, 2, 3, 7, 64}) {
    std::vector<int64_t> boundaries = {0};
    for (int r = 0; r < ranks; ++r) boundaries.push_back(boundaries.back() + r % 3 * (int64_t{1} << 40));
    DeviceArray<int64_t> device_boundaries(boundaries);
    for (const Placement& placement :
         {Placement(), Placement::OneRank(ranks / 2), Placement::AllRanks(), Placement::Ranges(boundaries)}) {
      const KeyOwners owners = placement.owners(ranks);
      KeyOwners on_device = owners;
      on_device.boundaries = device_boundaries.data();
      DeviceArray<int32_t> output(std::vector<int32_t>(kSize, -1));
      ASSERT_EQ(EvaluateOwnerOf(nullptr, input.data(), on_device, output.data(), kSize), cudaSuccess);
      const std::vector<int32_t> owner_of = output.Fetch();
      for (int64_t i = 0; i < kSize; ++i) ASSERT_EQ(owner_of[i], owners.OwnerOf(keys[i])) << keys[i];
    }
  }
}

TEST(SharedArithmeticTest, RowOf) {
  const std::vector<int64_t> keys = Keys();
  DeviceArray<int64_t> input(keys);
  for (const StaticRows& static_rows :
       {StaticRows{0, 1, 5}, StaticRows{2, 7, 1 << 20}, StaticRows{3, 1, 0}}) {
    DeviceArray<int64_t> output(std::vector<int64_t>(kSize, -2));
    ASSERT_EQ(EvaluateRowOf(nullptr, input.data(), static_rows, output.data(), kSize), cudaSuccess);
    const std::vector<int64_t> rows = output.Fetch();
    for (int64_t i = 0; i < kSize; ++i) ASSERT_EQ(rows[i], static_rows.RowOf(keys[i])) << keys[i];
  }
}

TEST(SharedArithmeticTest, InitialValue) {
  const std::vector<int64_t> keys = Keys();
  DeviceArray<int64_t> input(keys);
  DeviceArray<float> output(std::vector<float>(kSize, 0.0f));
  for (InitializerKind kind : {InitializerKind::kConstant, InitializerKind::kUniform,
                               InitializerKind::kNormal, InitializerKind::kTruncatedNormal}) {
    const Initializer initializer{kind, -0.25f, 0.75f, 12345};
    std::vector<float> expected(kSize);
    for (int64_t i = 0; i < kSize; ++i) expected[i] = InitialValue(initializer, keys[i], 63);
    ASSERT_EQ(EvaluateInitialValue(nullptr, initializer, input.data(), 63, output.data(), kSize),
              cudaSuccess);
    ExpectSameBits(output.Fetch(), expected);
  }
}

// Numbers of many magnitudes; a slot that is never negative for `positive`.
std::vector<float> Numbers(int seed, bool positive) {
  std::vector<float> numbers(kSize);
  std::mt19937 random(seed);
  std::normal_distribution<float> mantissa;
  std::uniform_int_distribution<int> exponent(-20, 4);
  for (float& number : numbers) {
    number = std::ldexp(mantissa(random), exponent(random));
    if (positive) number = std::fabs(number);
  }
  numbers[0] = 0.0f;
  return numbers;
}

// How far host and device may be apart after a step of the FTRL family with general powers (see Ftrl and
// GroupFtrl, whose names this has). powf differs by a few units in the last place, and the linear slot gets
// n'^p / lr * w and -n^p / lr * w, which nearly cancel if g is small. So errors are in proportion to the
// terms that are added, not to their sum.
class FtrlErrors {
 public:
  FtrlErrors(const RuleCase& rule, int64_t dim)
      : is_group_(rule.name == "group_ftrl"),
        lr_(rule.hyper[0]),
        p_(-rule.hyper[1]),
        twice_l2_(2 * rule.hyper[4] + rule.hyper[6] / rule.hyper[0]),
        twice_shrinkage_(2 * rule.hyper[5]),
        dim_(dim) {}

  // Of the weights, the accumulators and the linear slots of a row with these values before the step.
  std::vector<float> Of(const float* record, const float* gradients) const {
    std::vector<float> errors(3 * dim_, 0.0f);
    double squares = 0;
    for (int64_t c = 0; c < dim_; ++c) {
      errors[2 * dim_ + c] = OfLinear(record + c, gradients[c]);
      squares += std::pow(errors[2 * dim_ + c], 2);
    }
    const auto of_norm = static_cast<float>(is_group_ ? std::sqrt(squares) : 0);
    for (int64_t c = 0; c < dim_; ++c) {
      // The error of the linear slot, and as much for its product with the quotient's other factors.
      errors[c] = (2 * errors[2 * dim_ + c] + of_norm) / Quadratic(record + c, gradients[c]);
    }
    return errors;
  }

 private:
  // powf is within 4 units on devices (CUDA's programming guide) and within 1 in C libraries; the other
  // operations, each rounded once on both sides, have no more in sum.
  static constexpr float kRelative = 2 * (4 + 1) * std::numeric_limits<float>::epsilon();

  float NewAccumulator(const float* element, float g) const {
    const float added = is_group_ ? g + twice_shrinkage_ * element[0] : g;
    return element[dim_] + added * added;
  }
  float Quadratic(const float* element, float g) const {
    return std::pow(NewAccumulator(element, g), p_) / lr_ + twice_l2_;
  }
  float OfLinear(const float* element, float g) const {
    const float powers = std::pow(NewAccumulator(element, g), p_) + std::pow(element[dim_], p_);
    return kRelative * (std::fabs(element[2 * dim_]) + std::fabs(g) +
                        (twice_shrinkage_ + powers / lr_) * std::fabs(element[0]));
  }

  bool is_group_;
  float lr_, p_, twice_l2_, twice_shrinkage_;
  int64_t dim_;
};

class SharedStepTest : public ::testing::TestWithParam<RuleCase> {
 protected:
  // A row's bits, or with `errors` its values up to these.
  static void ExpectRow(int64_t row, const float* actual, const std::vector<float>& expected,
                        const std::vector<float>& errors) {
    for (size_t c = 0; c < expected.size(); ++c) {
      const bool is_same = errors.empty() ? std::memcmp(&actual[c], &expected[c], sizeof(float)) == 0
                                          : std::fabs(actual[c] - expected[c]) <= errors[c];
      if (is_same) continue;
      FAIL() << std::setprecision(9) << "row " << row << ", float " << c << " of its record: " << actual[c]
             << " on the device, " << expected[c] << " on the host, at most "
             << (errors.empty() ? 0.0f : errors[c]) << " apart";
    }
  }
};

TEST_P(SharedStepTest, StepsOfRowsAreThoseOfTheEngine) {
  constexpr int64_t kRows = 1000;
  constexpr int64_t kDim = 37;
  const std::vector<float>& hyper = GetParam().hyper;
  InlineExecutor executor;
  TrainedRows rows(GetParam().name, kRows, kDim, hyper);
  const int64_t stride = rows.store().stride();
  // Slots that are never negative; gradients and weights of either sign.
  const std::vector<float> weights = Numbers(2, false), slots = Numbers(3, true);
  std::vector<float> records(kRows * stride, 0.0f);
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t floats = static_cast<int64_t>(rows.Record(row).size());
    for (int64_t c = 0; c < floats; ++c) {
      const int64_t at = row * kDim + c;
      records[row * stride + c] = c < kDim ? weights[at] : slots[(at * 7) % kSize];
    }
    std::copy_n(&records[row * stride], floats, rows.store().weights(row));
  }
  std::vector<float> gradients = Numbers(1, false);
  gradients.resize(kRows * kDim);

  DeviceArray<float> device_records(records), device_gradients(gradients);
  ASSERT_EQ(EvaluateStep(nullptr, GetParam().name, hyper.data(), device_gradients.data(),
                         device_records.data(), stride, kRows, kDim),
            cudaSuccess);
  rows.Step(executor, hyper, rows.AllRows(), gradients);
  ASSERT_TRUE(rows.status().ok()) << rows.status().message();

  const bool same_bits = GetParam().rule().has_same_bits_everywhere(hyper.data());
  const std::vector<float> stepped = device_records.Fetch();
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<float> errors;
    if (!same_bits) errors = FtrlErrors(GetParam(), kDim).Of(&records[row * stride], &gradients[row * kDim]);
    ASSERT_NO_FATAL_FAILURE(ExpectRow(row, &stepped[row * stride], rows.Record(row), errors));
  }
}

INSTANTIATE_TEST_SUITE_P(All, SharedStepTest, ::testing::ValuesIn(AllRuleCases()),
                         RuleCaseName<::testing::TestParamInfo<RuleCase>>);

TEST(SharedArithmeticTest, CatchUp) {
  const AdamCatchUp<4> catch_up{{0.01f, 0.002f, -0.0003f, 0.00004f}, 1e-3f, 0.35f, 0.97f};
  std::vector<float> weights = Numbers(1, false), m = Numbers(2, false), v = Numbers(3, true);
  DeviceArray<float> device_weights(weights), device_m(m), device_v(v);
  ASSERT_EQ(
      EvaluateCatchUp(nullptr, catch_up, device_weights.data(), device_m.data(), device_v.data(), kSize),
      cudaSuccess);
  for (int64_t i = 0; i < kSize; ++i) catch_up(weights[i], m[i], v[i]);
  ExpectSameBits(device_weights.Fetch(), weights);
  ExpectSameBits(device_m.Fetch(), m);
  ExpectSameBits(device_v.Fetch(), v);
}

TEST(EvaluateStep, KnowsEveryRuleAndNoOther) {
  for (const RuleCase& one : OneCasePerRule()) {
    EXPECT_EQ(EvaluateStep(nullptr, one.name, one.hyper.data(), nullptr, nullptr, 1, 0, 1), cudaSuccess)
        << one.name;
  }
  EXPECT_EQ(EvaluateStep(nullptr, "none", nullptr, nullptr, nullptr, 1, 0, 1), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace sok
