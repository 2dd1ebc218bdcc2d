// For tests: a random lookup whose rows are in a table on the device.
#ifndef SOK_CUDA_POOLING_TESTING_DEVICE_LOOKUP_H_
#define SOK_CUDA_POOLING_TESTING_DEVICE_LOOKUP_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cc/cpu/pooling/testing/random_lookup.h"
#include "cc/initializers/initializer.h"
#include "cc/table/record_layout.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/pooling/lookup_view.h"
#include "cuda/store/row_store_view.h"

namespace sok {

// For tests: rows of a table on the device.

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

class DeviceLookup {
 public:
  // The group has other occurrences before those of the lookup.
  static constexpr int64_t kFirst = 5;
  template <typename T>
  static std::vector<T> WithOthers(const std::vector<T>& values, T other) {
    std::vector<T> all(kFirst, other);
    all.insert(all.end(), values.begin(), values.end());
    return all;
  }

  // Every `absent`th distinct id has no row; 0: all have one. `lookup` is then changed to hold the values
  // that such ids read.
  DeviceLookup(RandomLookup lookup, uint64_t seed, int absent = 0, const Initializer& initial = {})
      : lookup_(std::move(lookup)), initial_(initial), may_be_absent_(absent > 0) {
    std::vector<int64_t> ids(lookup_.rows.size());
    std::mt19937_64 random(seed);
    for (int64_t& id : ids) id = static_cast<int64_t>(random());
    DeviceRows rows(lookup_.table, lookup_.dim, lookup_.dim, /*gap=*/3 * static_cast<int64_t>(seed % 3),
                    seed);
    std::vector<int64_t> numbers = rows.numbers();
    for (size_t u = 0; u < numbers.size(); ++u) {
      if (absent > 0 && u % static_cast<size_t>(absent) == 0) {
        numbers[u] = -1;
        FillRow(initial, ids[u],
                Span<float>(lookup_.table.data() + static_cast<int64_t>(u) * lookup_.dim, lookup_.dim));
      } else if (u % 2 == 0) {
        numbers[u] = MakeRowReference(numbers[u], /*generation=*/static_cast<uint32_t>(u + 1));
      }
    }
    for (size_t u = 0; u < lookup_.rows.size(); ++u) {
      lookup_.rows[u] = lookup_.table.data() + static_cast<int64_t>(u) * lookup_.dim;
    }
    std::vector<int64_t> keys(kFirst, 0);
    for (const int32_t u : lookup_.inverse) keys.push_back(ids[static_cast<size_t>(u)]);
    std::vector<int32_t> begin;
    for (const int64_t offset : lookup_.offsets) begin.push_back(static_cast<int32_t>(kFirst + offset));
    rows_ = std::make_unique<DeviceRows>(std::move(rows));
    numbers_ = std::make_unique<DeviceArray<int64_t>>(numbers);
    keys_ = std::make_unique<DeviceArray<int64_t>>(keys);
    inverse_ = std::make_unique<DeviceArray<int32_t>>(WithOthers(lookup_.inverse, int32_t{1} << 30));
    begin_ = std::make_unique<DeviceArray<int32_t>>(begin);
    weights_ = std::make_unique<DeviceArray<float>>(WithOthers(lookup_.weights, NAN));
  }

  const RandomLookup& host() const { return lookup_; }

  OccurrenceRows ids() const {
    OccurrenceRows rows;
    rows.inverse = inverse_->data();
    rows.rows = numbers_->data();
    rows.table = rows_->view();
    rows.may_be_absent = may_be_absent_;
    rows.keys = keys_->data();
    rows.initial = initial_;
    return rows;
  }
  BagsView bags(Combiner combiner, bool weighted) const {
    return {begin_->data(), weighted ? weights_->data() : nullptr,      kFirst, lookup_.bags(),
            combiner,       static_cast<int32_t>(lookup_.occurrences())};
  }
  // The occurrences without bags.
  BagsView occurrences() const { return {nullptr, nullptr, kFirst, lookup_.occurrences(), Combiner::kSum}; }

 private:
  RandomLookup lookup_;
  Initializer initial_;
  bool may_be_absent_;
  std::unique_ptr<DeviceRows> rows_;
  std::unique_ptr<DeviceArray<int64_t>> numbers_;
  std::unique_ptr<DeviceArray<int64_t>> keys_;
  std::unique_ptr<DeviceArray<int32_t>> inverse_;
  std::unique_ptr<DeviceArray<int32_t>> begin_;
  std::unique_ptr<DeviceArray<float>> weights_;
};

constexpr int64_t kDeviceDims[] = {1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 64, 100, 128, 256, 1000};

}  // namespace sok

#endif  // SOK_CUDA_POOLING_TESTING_DEVICE_LOOKUP_H_
