// For tests: rows of a table on the device.
#ifndef SOK_CUDA_POOLING_TESTING_DEVICE_ROWS_H_
#define SOK_CUDA_POOLING_TESTING_DEVICE_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "cuda/base/testing/device_array.h"
#include "cuda/store/row_store_view.h"

namespace sok {

// The bits of floats, because -0 equals 0 when compared as a float.
inline std::vector<uint32_t> Bits(const std::vector<float>& floats) {
  std::vector<uint32_t> bits(floats.size());
  if (!floats.empty()) std::memcpy(bits.data(), floats.data(), floats.size() * sizeof(float));
  return bits;
}

// Rows in slabs of four, at random places of the first slabs but one.
class DeviceRows {
 public:
  // values[rows, width] are the records, `dim` weights and then slots, with at least `gap` floats of padding
  // after each.
  DeviceRows(const std::vector<float>& values, int64_t dim, int64_t width, int64_t gap, uint64_t seed)
      : dim_(dim),
        width_(width),
        stride_((width + gap + 3) / 4 * 4),
        numbers_(values.size() / static_cast<size_t>(width)) {
    const int64_t rows = static_cast<int64_t>(numbers_.size());
    const int64_t slabs = rows / kSlabRows + 2;
    for (int64_t i = 0; i < rows; ++i) numbers_[static_cast<size_t>(i)] = i + kSlabRows;
    std::shuffle(numbers_.begin(), numbers_.end(), std::mt19937_64(seed));
    std::vector<float> memory(static_cast<size_t>(slabs * kSlabRows * stride_), kOutside);
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(values.begin() + i * width, width, memory.begin() + PlaceOf(i));
    }
    memory_ = std::make_unique<DeviceArray<float>>(memory);
    std::vector<char*> pointers;
    for (int64_t s = 0; s < slabs; ++s) {
      pointers.push_back(reinterpret_cast<char*>(memory_->data() + s * kSlabRows * stride_));
    }
    slabs_ = std::make_unique<DeviceArray<char*>>(pointers);
  }

  RowStoreView view() const {
    RowStoreView view;
    view.slabs = slabs_->data();
    view.mask = kSlabRows - 1;
    view.record_bytes = stride_ * static_cast<int64_t>(sizeof(float));
    view.dim = dim_;
    view.width = width_;
    view.bits = kBits;
    return view;
  }
  // The number of each row.
  const std::vector<int64_t>& numbers() const { return numbers_; }
  // The number of addressable rows.
  int64_t addressable() const {
    return static_cast<int64_t>(numbers_.size()) / kSlabRows * kSlabRows + 2 * kSlabRows;
  }

  // The records as they are now, [rows, width]. Fails the test if anything outside of them was written,
  // except with `others_may_change`, for passes over all rows of a table.
  std::vector<float> Fetch(bool others_may_change = false) const {
    std::vector<float> memory = memory_->Fetch();
    std::vector<float> values;
    for (size_t i = 0; i < numbers_.size(); ++i) {
      const auto record = memory.begin() + PlaceOf(static_cast<int64_t>(i));
      values.insert(values.end(), record, record + width_);
      std::fill(record, record + width_, kOutside);
    }
    EXPECT_TRUE(others_may_change ||
                std::all_of(memory.begin(), memory.end(), [](float f) { return f == kOutside; }));
    return values;
  }

 private:
  static constexpr int kBits = 2;
  static constexpr int64_t kSlabRows = 1 << kBits;
  static constexpr float kOutside = 99.0f;

  int64_t PlaceOf(int64_t i) const { return numbers_[static_cast<size_t>(i)] * stride_; }

  int64_t dim_;
  int64_t width_;
  int64_t stride_;
  std::vector<int64_t> numbers_;
  std::unique_ptr<DeviceArray<float>> memory_;
  std::unique_ptr<DeviceArray<char*>> slabs_;
};

}  // namespace sok

#endif  // SOK_CUDA_POOLING_TESTING_DEVICE_ROWS_H_
