// Optimizers give the same bits on the device as on the host.
#include "cuda/training/device_optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/cpu/optimizers/testing/trained_rows.h"
#include "cc/optimizers/testing/rule_cases.h"
#include "cc/table/record_layout.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/base/testing/limited_allocator.h"
#include "cuda/pooling/testing/device_lookup.h"
#include "cuda/training/device_adam_history.h"
#include "cuda/training/testing/device_gradients.h"

namespace sok {

// For tests: a table trained on the host and on the device, step by step.

class OptimizerTwins {
 public:
  // Every row has different weights. `same_bits`: whether host and device must agree bit for bit.
  OptimizerTwins(std::string_view name, int64_t rows, int64_t dim, const std::vector<float>& hyper)
      : host_(name, rows, dim, hyper),
        same_bits_(host_.optimizer().rule().has_same_bits_everywhere(hyper.data())) {
    ResetDevice();
    StatusOr<std::unique_ptr<DeviceOptimizer>> optimizer = DeviceOptimizer::Make(name, &allocator_);
    EXPECT_TRUE(optimizer.ok());
    optimizer_ = std::move(optimizer.value());
    Expect(optimizer_->Reserve(nullptr, device_->addressable()));
    optimizer_->UseRows(device_->addressable());
    NewRows(host_.AllRows());
  }

  TrainedRows& host() { return host_; }
  DeviceOptimizer& device() { return *optimizer_; }
  void ReplaceDevice(std::unique_ptr<DeviceOptimizer> optimizer) { optimizer_ = std::move(optimizer); }
  DeviceAllocator* allocator() { return &allocator_; }
  // Of steps with gradients in memory; the default stream at first. Waits for earlier work.
  void UseStream(cudaStream_t stream) {
    Expect(cudaDeviceSynchronize());
    stream_ = stream;
  }
  RowStoreView table() const { return device_->view(); }

  // Copies the host's records, which a test has changed, to the device.
  void ResetDevice() {
    std::vector<float> records;
    int64_t width = 0;
    for (const std::vector<float>& record : host_.Records()) {
      width = static_cast<int64_t>(record.size());
      records.insert(records.end(), record.begin(), record.end());
    }
    device_ = std::make_unique<DeviceRows>(records, host_.store().dim(), width, /*gap=*/0, /*seed=*/7);
  }

  void NewRows(const std::vector<int64_t>& rows) {
    for (const int64_t row : rows) host_.optimizer().OnNewRow(row);
    std::vector<int64_t> numbers = NumbersOf(rows);
    numbers.push_back(-1);
    DeviceArray<int64_t> device_rows(numbers);
    Expect(optimizer_->OnNewRows(nullptr, device_rows.data(), static_cast<int64_t>(numbers.size())));
  }

  // A step with gradients in memory.
  void StoredStep(const std::vector<float>& hyper, const std::vector<int64_t>& rows,
                  const std::vector<float>& grads) {
    host_.Step(executor_, hyper, rows, grads);
    const DeviceArray<int64_t> device_rows(ReferencesTo(rows));
    DeviceArray<float> device_grads(grads);
    RowUpdate update;
    update.table = device_->view();
    update.rows = const_cast<DeviceArray<int64_t>&>(device_rows).data();
    update.count = static_cast<int64_t>(rows.size());
    update.stored = device_grads.data();
    const DeviceStep step = {optimizer_.get(), hyper, update};
    Expect(EnqueueSteps(stream_, &allocator_, {}, Span<const DeviceStep>(&step, 1)));
    Expect(cudaDeviceSynchronize());
  }

  // A step with sums over occurrences. Distinct id k belongs to rows[k], or to no row if that is -1.
  void SummedStep(const std::vector<float>& hyper, const std::vector<int64_t>& rows,
                  const TableOccurrences& occurrences, uint64_t seed) {
    const DeviceGradients gradients({occurrences}, seed);
    std::vector<int64_t> present;
    std::vector<float> sums;
    for (size_t k = 0; k < rows.size(); ++k) {
      if (rows[k] < 0) continue;
      const auto sum = gradients.expected(0).begin() + static_cast<int64_t>(k) * occurrences.dim;
      present.push_back(rows[k]);
      sums.insert(sums.end(), sum, sum + occurrences.dim);
    }
    host_.Step(executor_, hyper, present, sums);
    DeviceArray<int64_t> device_rows(ReferencesTo(rows));
    RowUpdate update;
    update.table = device_->view();
    update.rows = device_rows.data();
    update.count = static_cast<int64_t>(rows.size());
    update.gradients = gradients.tables()[0];
    const DeviceStep step = {optimizer_.get(), hyper, update};
    Expect(EnqueueSteps(nullptr, &allocator_, gradients.group(), Span<const DeviceStep>(&step, 1)));
    Expect(cudaDeviceSynchronize());
  }

  void CatchUp(const std::vector<int64_t>& rows) {
    host_.CatchUp(executor_, rows);
    DeviceArray<int64_t> device_rows(ReferencesTo(rows));
    const DeviceCatchUp catch_up = {optimizer_.get(), device_->view(),
                                    RowList{device_rows.data(), 0, static_cast<int64_t>(rows.size())}};
    Expect(EnqueueCatchUps(nullptr, Span<const DeviceCatchUp>(&catch_up, 1)));
    Expect(cudaDeviceSynchronize());
  }

  void ExpectSameRecords(const std::string& what, bool others_may_change = false) {
    ASSERT_TRUE(host_.status().ok()) << host_.status().message();
    const std::vector<float> actual = device_->Fetch(others_may_change);
    std::vector<float> expected;
    for (const std::vector<float>& record : host_.Records()) {
      expected.insert(expected.end(), record.begin(), record.end());
    }
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      const bool both_nan = std::isnan(actual[i]) && std::isnan(expected[i]);
      const bool same = same_bits_
                            ? std::memcmp(&actual[i], &expected[i], sizeof(float)) == 0
                            : std::fabs(actual[i] - expected[i]) <= 1e-4f * (1 + std::fabs(expected[i]));
      ASSERT_TRUE(same || both_nan) << what << ", float " << i << ": " << actual[i] << " for " << expected[i];
    }
    EXPECT_EQ(optimizer_->steps(), host_.optimizer().steps());
  }

  std::vector<int64_t> NumbersOf(const std::vector<int64_t>& rows) const {
    std::vector<int64_t> numbers;
    for (const int64_t row : rows) {
      numbers.push_back(row < 0 ? -1 : device_->numbers()[static_cast<size_t>(row)]);
    }
    return numbers;
  }

 private:
  std::vector<int64_t> ReferencesTo(const std::vector<int64_t>& rows) const {
    std::vector<int64_t> numbers = NumbersOf(rows);
    for (int64_t& number : numbers) {
      if (number % 2 == 0) number = MakeRowReference(number, /*generation=*/5);
    }
    return numbers;
  }

  static void Expect(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }
  static void Expect(cudaError_t error) { EXPECT_EQ(error, cudaSuccess); }

  InlineExecutor executor_;
  TrainedRows host_;
  const bool same_bits_;
  AsyncAllocator allocator_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<DeviceRows> device_;
  std::unique_ptr<DeviceOptimizer> optimizer_;
};

namespace {

// A random step with sums: some rows, and some distinct ids without one.
void TakeSummedStep(const std::vector<float>& hyper, int64_t dim, uint64_t seed, OptimizerTwins* twins) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> rows = twins->host().AllRows();
  std::shuffle(rows.begin(), rows.end(), random);
  rows.resize(rows.size() / 2);
  rows[rows.size() / 3] = -1;
  TableOccurrences occurrences =
      SkewedOccurrences(dim, static_cast<int64_t>(rows.size()), static_cast<int64_t>(3 * rows.size()), seed);
  for (size_t k = 0; k < rows.size(); ++k) occurrences.inverse.push_back(static_cast<int32_t>(k));
  occurrences.divisor = seed % 2 == 0 ? 1.0f : 2.0f;
  occurrences.aligned = seed % 3 != 0;
  twins->SummedStep(hyper, rows, occurrences, seed);
}

void TakeStoredStep(const std::vector<float>& hyper, int64_t dim, uint64_t seed, OptimizerTwins* twins) {
  std::mt19937_64 random(seed);
  const RandomStep step = MakeRandomStep(twins->host().size(), dim, 0.5, &random);
  twins->StoredStep(hyper, step.rows, step.grads);
}

class EveryRuleTest : public ::testing::TestWithParam<RuleCase> {};

TEST_P(EveryRuleTest, TrainsToTheBitsOfTheHost) {
  const std::vector<float>& hyper = GetParam().hyper;
  for (const int64_t dim : {1, 4, 33}) {
    OptimizerTwins twins(GetParam().name, /*rows=*/10, dim, hyper);
    for (uint64_t s = 0; s < 6; ++s) {
      s % 2 == 0 ? TakeSummedStep(hyper, dim, s, &twins) : TakeStoredStep(hyper, dim, s, &twins);
      if (s == 2) twins.CatchUp({1, 4, 9});
      if (s == 3) twins.NewRows({4, 5});
    }
    twins.ExpectSameRecords("after steps, dim " + std::to_string(dim));
    twins.CatchUp(twins.host().AllRows());
    twins.ExpectSameRecords("caught up, dim " + std::to_string(dim));
  }
}

TEST_P(EveryRuleTest, KeepsItsSteps) {
  StatusOr<std::unique_ptr<Optimizer>> host = MakeOptimizer(GetParam().name);
  AsyncAllocator allocator;
  StatusOr<std::unique_ptr<DeviceOptimizer>> device = DeviceOptimizer::Make(GetParam().name, &allocator);
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(device.value()->name(), host.value()->name());
  EXPECT_EQ(device.value()->has_catch_up(), host.value()->has_catch_up());
  EXPECT_EQ(device.value()->can_save_lag(), host.value()->can_save_lag());
  EXPECT_TRUE(device.value()->RestoreSteps(nullptr, 258).ok());
  EXPECT_EQ(device.value()->steps(), 258);
}

INSTANTIATE_TEST_SUITE_P(All, EveryRuleTest, ::testing::ValuesIn(AllRuleCases()),
                         RuleCaseName<::testing::TestParamInfo<RuleCase>>);

// Rows whose slots depend on the whole gradient: its sum of squares has one order for any number of lanes, in
// shared memory and, for long rows, outside of it.
TEST(DeviceOptimizerTest, RowwiseAdagradOfEveryDim) {
  const std::vector<float> hyper = {0.1f, 0.1f, 1e-8f};
  for (const int64_t dim :
       {1, 2, 3, 4, 8, 15, 16, 17, 31, 32, 36, 48, 63, 64, 100, 128, 129, 256, 1000, 1028}) {
    OptimizerTwins twins("rowwise_adagrad", /*rows=*/6, dim, hyper);
    TakeSummedStep(hyper, dim, /*seed=*/1, &twins);
    TakeStoredStep(hyper, dim, /*seed=*/2, &twins);
    TakeSummedStep(hyper, dim, /*seed=*/3, &twins);
    twins.ExpectSameRecords("dim " + std::to_string(dim));
  }
}

TEST(DeviceOptimizerTest, HotIds) {
  for (const char* name : {"sgd", "rowwise_adagrad", "adam"}) {
    const std::vector<float> hyper = RuleCase{name, {}}.rule().samples[0];
    OptimizerTwins twins(name, /*rows=*/20, /*dim=*/8, hyper);
    const TableOccurrences hot = SkewedOccurrences(8, 20, 2000, /*seed=*/3);
    twins.SummedStep(hyper, twins.host().AllRows(), hot, /*seed=*/3);
    twins.ExpectSameRecords(name);
  }
}

// So many that a warp takes several in turn.
TEST(DeviceOptimizerTest, ManyRows) {
  for (const char* name : {"adam", "group_ftrl"}) {
    const std::vector<float> hyper = RuleCase{name, {}}.rule().samples[0];
    OptimizerTwins twins(name, /*rows=*/17000, /*dim=*/64, hyper);
    TakeSummedStep(hyper, /*dim=*/64, /*seed=*/1, &twins);
    twins.ExpectSameRecords(name);
  }
}

// A change of a decay factor brings all rows up to date first.
TEST(DeviceOptimizerTest, FactorsMayChange) {
  for (const char* name : {"adam", "nadam", "keras_rmsprop_centered"}) {
    std::vector<float> hyper = RuleCase{name, {}}.rule().samples[0];
    OptimizerTwins twins(name, /*rows=*/10, /*dim=*/5, hyper);
    for (uint64_t s = 0; s < 9; ++s) {
      if (s == 3) hyper[1] = 0.7f;
      if (s == 6) hyper[2] = 0.6f;
      TakeStoredStep(hyper, 5, s, &twins);
    }
    twins.ExpectSameRecords(name, /*others_may_change=*/true);
  }
}

// Empty steps in between, so that rows miss many.
void TakeEmptySteps(const std::vector<float>& hyper, int64_t steps, OptimizerTwins* twins) {
  for (int64_t s = 0; s < steps; ++s) twins->StoredStep(hyper, {}, {});
}

TEST(DeviceOptimizerTest, LongGapsAndMomentsThatAreInfinite) {
  const float inf = std::numeric_limits<float>::infinity();
  // Series in which powers of beta1 or of beta2 vanish, also with one term; steps that have to be walked; the
  // usual betas.
  for (const std::vector<float>& hyper :
       {std::vector<float>{0.01f, 0.1f, 0.9f, 1e-8f}, std::vector<float>{0.01f, 0.1f, 0.9f, 0.0f},
        std::vector<float>{0.01f, 0.0f, 0.15f, 1e-3f}, std::vector<float>{0.01f, 0.5f, 0.1f, 1e-8f},
        std::vector<float>{0.01f, 0.9f, 0.999f, 1e-8f}}) {
    for (const int64_t dim : {3, 8}) {
      OptimizerTwins twins("adam", /*rows=*/8, dim, hyper);
      TakeStoredStep(hyper, dim, /*seed=*/1, &twins);
      for (const int64_t row : {2, 3}) {
        twins.host().store().slot(row, 0)[dim - 1] = row == 2 ? inf : -inf;
        twins.host().store().slot(row + 2, 1)[1] = inf;
      }
      twins.ResetDevice();
      TakeEmptySteps(hyper, 50, &twins);
      TakeStoredStep(hyper, dim, /*seed=*/2, &twins);
      TakeEmptySteps(hyper, 3, &twins);
      twins.CatchUp(twins.host().AllRows());
      twins.ExpectSameRecords("beta1 " + std::to_string(hyper[1]) + ", dim " + std::to_string(dim));
    }
  }
}

TEST(DeviceOptimizerTest, SlotsThatAreInfiniteStaySo) {
  const std::vector<float> hyper = {0.01f, 0.1f, 1e-3f};
  OptimizerTwins twins("keras_rmsprop", /*rows=*/4, /*dim=*/4, hyper);
  TakeStoredStep(hyper, 4, /*seed=*/1, &twins);
  twins.host().store().slot(1, 0)[2] = std::numeric_limits<float>::infinity();
  twins.ResetDevice();
  TakeEmptySteps(hyper, 60, &twins);
  twins.CatchUp({0, 1});
  TakeStoredStep(hyper, 4, /*seed=*/2, &twins);
  twins.ExpectSameRecords("rms");
}

// The history moves when it grows. With beta1 0 each step changes four coefficients.
TEST(DeviceOptimizerTest, HistoriesGrow) {
  const std::vector<float> hyper = {0.01f, 0.0f, 0.99f, 1e-3f};
  OptimizerTwins twins("adam", /*rows=*/4, /*dim=*/1, hyper);
  TakeStoredStep(hyper, 1, /*seed=*/1, &twins);
  TakeEmptySteps(hyper, 129, &twins);
  twins.CatchUp({0, 1});
  twins.ExpectSameRecords("after 130 steps");
}

// It grows two arrays.
TEST(DeviceOptimizerTest, AHistoryThatCannotGrowKeepsItsSteps) {
  AdamHistory host(0.0f, 0.99f);
  for (int step = 0; step < 128; ++step) host.Append(0.01f * static_cast<float>(step + 1));
  const AdamHistoryView want = host.view();
  for (int64_t allocations = 0; allocations < 2; ++allocations) {
    LimitedAllocator memory;
    StagedUpload upload;
    auto made = DeviceAdamHistory::Make(nullptr, &memory, &upload, 0.0f, 0.99f, host.alphas());
    ASSERT_TRUE(made.ok()) << made.status().message();
    DeviceAdamHistory& history = *made.value();
    memory.allocations_left = allocations;
    EXPECT_EQ(history.ReserveStep(nullptr).code(), StatusCode::kResourceExhausted);
    const AdamHistoryView view = history.view();
    std::vector<double> coefficients(want.steps * want.terms);
    std::vector<float> alphas(want.steps);
    ASSERT_EQ(cudaMemcpy(coefficients.data(), view.coefficients, coefficients.size() * sizeof(double),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    ASSERT_EQ(cudaMemcpy(alphas.data(), view.alphas, alphas.size() * sizeof(float), cudaMemcpyDeviceToHost),
              cudaSuccess);
    EXPECT_TRUE(std::equal(coefficients.begin(), coefficients.end(), want.coefficients));
    EXPECT_EQ(alphas, host.alphas());
    memory.allocations_left = INT64_MAX;
    EXPECT_TRUE(history.ReserveStep(nullptr).ok());
  }
}

// Memory is freed after the work of the stream that used it last, which need not be the one that allocated
// it.
TEST(DeviceOptimizerTest, StepsMayComeOnSeveralStreams) {
  // After the default stream, on which the test copies.
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamDefault), cudaSuccess);
  }
  for (const char* name : {"adam", "nadam"}) {
    std::vector<float> hyper = RuleCase{name, {}}.rule().samples[0];
    OptimizerTwins twins(name, /*rows=*/10, /*dim=*/5, hyper);
    for (uint64_t s = 0; s < 6; ++s) {
      // All rows catch up with the old factor's powers, which are replaced.
      if (s % 2 == 1) hyper[1] = 0.9f - 0.1f * static_cast<float>(s);
      twins.UseStream(streams[s % 2]);
      TakeStoredStep(hyper, 5, s, &twins);
    }
    twins.ExpectSameRecords(name, /*others_may_change=*/true);
  }
  const std::vector<float> hyper = {0.01f, 0.0f, 0.99f, 1e-3f};
  OptimizerTwins twins("adam", /*rows=*/4, /*dim=*/1, hyper);
  twins.UseStream(streams[0]);
  TakeStoredStep(hyper, 1, /*seed=*/1, &twins);
  TakeEmptySteps(hyper, 127, &twins);
  twins.UseStream(streams[1]);
  TakeEmptySteps(hyper, 2, &twins);
  twins.CatchUp({0, 1});
  twins.ExpectSameRecords("after the history has moved");
}

// As in a checkpoint: records and past steps are copied to another table.
TEST(DeviceOptimizerTest, PastStepsCanBeRestored) {
  for (const std::vector<float>& hyper : RuleCase{"adam", {}}.rule().samples) {
    OptimizerTwins twins("adam", /*rows=*/9, /*dim=*/4, hyper);
    for (uint64_t s = 0; s < 5; ++s) TakeStoredStep(hyper, 4, s, &twins);
    const PastSteps past = twins.device().past_steps();
    const PastSteps host_past = twins.host().optimizer().past_steps();
    EXPECT_EQ(past.alphas, host_past.alphas);
    EXPECT_EQ(past.first_step, host_past.first_step);
    StatusOr<std::unique_ptr<DeviceOptimizer>> made = DeviceOptimizer::Make("adam", twins.allocator());
    ASSERT_TRUE(made.ok());
    DeviceOptimizer& restored = *made.value();
    ASSERT_TRUE(restored.Reserve(nullptr, 20).ok());
    restored.UseRows(20);
    ASSERT_TRUE(restored.RestoreSteps(nullptr, twins.device().steps()).ok());
    ASSERT_TRUE(restored.RestorePastSteps(nullptr, past).ok());
    std::vector<uint32_t> steps;
    for (int64_t row = 0; row < 9; ++row) {
      steps.push_back(restored.ColumnStep(twins.host().optimizer().last_current(row)));
      EXPECT_EQ(restored.StepOf(steps.back()), twins.host().optimizer().last_current(row));
    }
    DeviceArray<int64_t> rows(twins.NumbersOf(twins.host().AllRows()));
    DeviceArray<uint32_t> device_steps(steps);
    ASSERT_TRUE(
        ScatterColumn(nullptr, restored.last_current(), RowList{rows.data(), 0, 9}, device_steps.data())
            .ok());
    twins.ReplaceDevice(std::move(made.value()));
    TakeSummedStep(hyper, 4, /*seed=*/10, &twins);
    twins.CatchUp(twins.host().AllRows());
    twins.ExpectSameRecords("restored");
  }
}

TEST(DeviceOptimizerTest, PastStepsOfAnotherOptimizerAreErrors) {
  AsyncAllocator allocator;
  StatusOr<std::unique_ptr<DeviceOptimizer>> adam = DeviceOptimizer::Make("adam", &allocator);
  PastSteps past;
  past.alphas = {0.1f};
  EXPECT_EQ(adam.value()->RestorePastSteps(nullptr, past).code(), StatusCode::kInvalidArgument);
  StatusOr<std::unique_ptr<DeviceOptimizer>> sgd = DeviceOptimizer::Make("sgd", &allocator);
  EXPECT_EQ(sgd.value()->RestorePastSteps(nullptr, PastSteps()).code(), StatusCode::kInvalidArgument);
}

// Tables of different dims and hyper-parameters in one call, those of FTRL with different steps.
TEST(DeviceOptimizerTest, TablesOfAGroupShareLaunches) {
  const std::vector<std::vector<float>> samples = RuleCase{"ftrl", {}}.rule().samples;
  std::vector<std::unique_ptr<OptimizerTwins>> twins;
  std::vector<DeviceStep> steps;
  std::vector<std::unique_ptr<DeviceArray<int64_t>>> rows;
  std::vector<std::unique_ptr<DeviceArray<float>>> grads;
  InlineExecutor executor;
  std::mt19937_64 random(5);
  std::vector<std::vector<float>> hypers;
  for (size_t t = 0; t < 24; ++t) hypers.push_back(samples[t / 2 % samples.size()]);
  for (size_t t = 0; t < hypers.size(); ++t) {
    const int64_t dim = static_cast<int64_t>(t % 5 + 1);
    twins.push_back(std::make_unique<OptimizerTwins>("ftrl", 4, dim, hypers[t]));
    const std::vector<float> values = RandomFloats(4 * dim, &random);
    twins[t]->host().Step(executor, hypers[t], twins[t]->host().AllRows(), values);
    rows.push_back(std::make_unique<DeviceArray<int64_t>>(twins[t]->NumbersOf(twins[t]->host().AllRows())));
    grads.push_back(std::make_unique<DeviceArray<float>>(values));
    RowUpdate update;
    update.table = twins[t]->table();
    update.rows = rows[t]->data();
    update.count = 4;
    update.stored = grads[t]->data();
    steps.push_back({&twins[t]->device(), hypers[t], update});
  }
  AsyncAllocator allocator;
  ASSERT_TRUE(EnqueueSteps(nullptr, &allocator, {}, steps).ok());
  for (size_t t = 0; t < twins.size(); ++t) twins[t]->ExpectSameRecords("table " + std::to_string(t));
}

TEST(DeviceOptimizerTest, UnknownNames) {
  AsyncAllocator allocator;
  EXPECT_EQ(DeviceOptimizer::Make("none", &allocator).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(EnqueueRowUpdates(nullptr, &allocator, "none", {}, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(EnqueueRowCatchUps(nullptr, "none", {}).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sok
