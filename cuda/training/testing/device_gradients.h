// For tests: the occurrences of a group's tables, with gradients on the device.
#ifndef SOK_CUDA_TRAINING_TESTING_DEVICE_GRADIENTS_H_
#define SOK_CUDA_TRAINING_TESTING_DEVICE_GRADIENTS_H_

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cc/base/executor.h"
#include "cc/cpu/dedup/dedup.h"
#include "cc/cpu/pooling/segment_sum.h"
#include "cc/cpu/pooling/testing/random_lookup.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/training/gradient_sums.h"

namespace sok {

// One table's occurrences: the distinct id of each.
struct TableOccurrences {
  int64_t dim = 1;
  int64_t unique = 0;
  std::vector<int32_t> inverse;
  bool scaled = true;   // else all scales are 1
  bool aligned = true;  // gradients start at multiples of 16 bytes, if dim allows
  float divisor = 1.0f;
};

class DeviceGradients {
 public:
  DeviceGradients(const std::vector<TableOccurrences>& tables, uint64_t seed) : tables_(tables) {
    std::mt19937_64 random(seed);
    std::vector<int32_t> begin = {0}, positions;
    std::vector<int64_t> grad_at;  // where each occurrence's gradient is
    std::vector<float> grads, scales;
    for (const TableOccurrences& table : tables) {
      const int64_t first = static_cast<int64_t>(positions.size());
      const int64_t count = static_cast<int64_t>(table.inverse.size());
      const int64_t first_unique = static_cast<int64_t>(begin.size()) - 1;
      const bool in_fours = table.dim % 4 == 0 && table.aligned;
      views_.push_back({table.dim, first_unique, table.unique, first, count, in_fours, table.divisor});
      Segments segments;
      BuildSegments(table.inverse, table.unique, &segments);
      for (int64_t u = 1; u <= table.unique; ++u) {
        begin.push_back(static_cast<int32_t>(first + segments.offsets[static_cast<size_t>(u)]));
      }
      for (const int32_t p : segments.positions) positions.push_back(static_cast<int32_t>(first + p));
      // Two occurrences share each gradient, as the occurrences of a bag do.
      const int64_t stride = table.dim + (in_fours ? 4 : 1);
      const int64_t start = static_cast<int64_t>(grads.size() + 3) / 4 * 4 + (table.aligned ? 0 : 1);
      grads.resize(static_cast<size_t>(start));
      const std::vector<float> values = RandomFloats((count / 2 + 1) * stride, &random);
      grads.insert(grads.end(), values.begin(), values.end());
      for (int64_t p = 0; p < count; ++p) grad_at.push_back(start + p / 2 * stride);
      const std::vector<float> factors = RandomFloats(count, &random);
      for (const float factor : factors) scales.push_back(table.scaled ? factor : 1.0f);
      segments_.push_back(std::move(segments));
    }
    grads_ = std::make_unique<DeviceArray<float>>(grads);
    std::vector<OccurrenceGradient> entries;
    for (size_t p = 0; p < grad_at.size(); ++p) entries.push_back({grads_->data() + grad_at[p], scales[p]});
    begin_ = std::make_unique<DeviceArray<int32_t>>(begin);
    positions_ = std::make_unique<DeviceArray<int32_t>>(positions);
    entries_ = std::make_unique<DeviceArray<OccurrenceGradient>>(entries);
    for (size_t t = 0; t < tables.size(); ++t) SumOnHost(t, grads, grad_at, scales);
  }

  OccurrenceSegments group() const { return {begin_->data(), positions_->data(), entries_->data()}; }
  const std::vector<TableGradients>& tables() const { return views_; }
  // [unique, dim]: the sums of table t, computed by the CPU.
  const std::vector<float>& expected(size_t t) const { return expected_[t]; }

 private:
  void SumOnHost(size_t t, const std::vector<float>& grads, const std::vector<int64_t>& grad_at,
                 const std::vector<float>& scales) {
    const TableGradients& view = views_[t];
    std::vector<const float*> rows;
    for (int64_t p = 0; p < view.occurrences; ++p) {
      rows.push_back(grads.data() + grad_at[static_cast<size_t>(view.first_occurrence + p)]);
    }
    std::vector<float> sums(static_cast<size_t>(view.unique * view.dim));
    InlineExecutor executor;
    SegmentSum(executor, segments_[t].offsets, segments_[t].positions, rows,
               tables_[t].scaled ? Span<const float>(scales).subspan(view.first_occurrence, view.occurrences)
                                 : Span<const float>(),
               view.dim, sums.data());
    for (float& sum : sums) sum = view.divisor == 1.0f ? sum : sum / view.divisor;
    expected_.push_back(std::move(sums));
  }

  std::vector<TableOccurrences> tables_;
  std::vector<Segments> segments_;
  std::vector<TableGradients> views_;
  std::vector<std::vector<float>> expected_;
  std::unique_ptr<DeviceArray<float>> grads_;
  std::unique_ptr<DeviceArray<int32_t>> begin_;
  std::unique_ptr<DeviceArray<int32_t>> positions_;
  std::unique_ptr<DeviceArray<OccurrenceGradient>> entries_;
};

// `count` occurrences of distinct ids in [0, unique), skewed so that low ones occur most often.
inline TableOccurrences SkewedOccurrences(int64_t dim, int64_t unique, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> popularity;
  for (int64_t u = 0; u < unique; ++u) popularity.push_back(1.0 / static_cast<double>(u + 1));
  std::discrete_distribution<int32_t> pick(popularity.begin(), popularity.end());
  TableOccurrences table;
  table.dim = dim;
  table.unique = unique;
  for (int64_t i = 0; i < count; ++i) table.inverse.push_back(pick(random));
  return table;
}

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_TESTING_DEVICE_GRADIENTS_H_
