// For tests: a table trained on the host and on the device, step by step.
#ifndef SOK_CUDA_TRAINING_TESTING_OPTIMIZER_TWINS_H_
#define SOK_CUDA_TRAINING_TESTING_OPTIMIZER_TWINS_H_

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/cpu/optimizers/testing/trained_rows.h"
#include "cc/table/row_reference.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/pooling/testing/device_rows.h"
#include "cuda/training/device_optimizer.h"
#include "cuda/training/testing/device_gradients.h"

namespace sok {

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

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_TESTING_OPTIMIZER_TWINS_H_
