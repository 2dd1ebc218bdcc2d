#include "cuda/programs/benchmark/batches.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "cuda/base/device_buffer.h"

namespace sok {

template <typename T>
StatusOr<DeviceBuffer<T>> OnDevice(cudaStream_t stream, DeviceAllocator* memory,
                                   const std::vector<T>& values) {
  StatusOr<DeviceBuffer<T>> made =
      DeviceBuffer<T>::Allocate(memory, stream, static_cast<int64_t>(values.size()));
  SOK_RETURN_IF_ERROR(made.status());
  SOK_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(made.value().data(), values.data(), values.size() * sizeof(T),
                                           cudaMemcpyHostToDevice, stream),
                           "cannot copy to the device");
  SOK_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream), "cannot wait for a copy");
  return made;
}

template StatusOr<DeviceBuffer<int64_t>> OnDevice(cudaStream_t, DeviceAllocator*,
                                                  const std::vector<int64_t>&);

StatusOr<LookupIds> LookupIds::Make(cudaStream_t stream, DeviceAllocator* memory,
                                    const std::vector<int64_t>& ids, double hotness, uint64_t seed) {
  LookupIds made;
  StatusOr<DeviceBuffer<int64_t>> device_ids = OnDevice(stream, memory, ids);
  SOK_RETURN_IF_ERROR(device_ids.status());
  made.ids_ = std::move(device_ids.value());
  std::vector<int64_t> sorted = ids;
  std::sort(sorted.begin(), sorted.end());
  const auto distinct = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
  made.unique_ = static_cast<double>(distinct) / static_cast<double>(std::max<size_t>(ids.size(), 1));
  if (hotness == 0) return StatusOr<LookupIds>(std::move(made));

  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int64_t> length(1, std::max<int64_t>(1, std::llround(2 * hotness - 1)));
  std::vector<int64_t> splits = {0};
  const auto n = static_cast<int64_t>(ids.size());
  while (splits.back() < n) splits.push_back(std::min(n, splits.back() + length(random)));
  made.bags_ = static_cast<int64_t>(splits.size()) - 1;
  StatusOr<DeviceBuffer<int64_t>> device_splits = OnDevice(stream, memory, splits);
  SOK_RETURN_IF_ERROR(device_splits.status());
  made.splits_ = std::move(device_splits.value());
  return StatusOr<LookupIds>(std::move(made));
}

LookupSpec LookupIds::spec(int table) const {
  LookupSpec spec;
  spec.table = table;
  spec.layout = pooled() ? IdLayout::kRagged : IdLayout::kDense;
  spec.combiner = Combiner::kMean;
  return spec;
}

LookupInput LookupIds::input() const {
  LookupInput input;
  input.ids = ids_.data();
  input.num_ids = ids_.size();
  if (pooled()) {
    input.num_bags = bags_;
    input.row_splits = splits_.data();
  }
  return input;
}

}  // namespace sok
