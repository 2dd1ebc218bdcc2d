#ifndef SOK_CUDA_PROGRAMS_BENCHMARK_BATCHES_H_
#define SOK_CUDA_PROGRAMS_BENCHMARK_BATCHES_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/base/device_buffer.h"

namespace sok {

// A copy of a host array in memory from `memory`. Waits for the copy.
template <typename T>
StatusOr<DeviceBuffer<T>> OnDevice(cudaStream_t stream, DeviceAllocator* memory,
                                   const std::vector<T>& values);

// The ids of one lookup on the device, as inputs of the engine.
class LookupIds {
 public:
  // hotness 0: ids without bags; else bags of about as many ids, each with at least one (by row splits).
  static StatusOr<LookupIds> Make(cudaStream_t stream, DeviceAllocator* memory,
                                  const std::vector<int64_t>& ids, double hotness, uint64_t seed);

  // Pooled lookups use the mean.
  LookupSpec spec(int table) const;
  LookupInput input() const;
  const int64_t* ids() const { return ids_.data(); }
  int64_t size() const { return ids_.size(); }
  int64_t rows() const { return bags_ > 0 ? bags_ : ids_.size(); }  // of the output
  double unique() const { return unique_; }                         // distinct ids for each id
  double hotness() const {                                          // ids for each row of the output
    return static_cast<double>(size()) / static_cast<double>(rows());
  }
  bool pooled() const { return bags_ > 0; }

 private:
  DeviceBuffer<int64_t> ids_;
  DeviceBuffer<int64_t> splits_;
  int64_t bags_ = 0;  // 0: not pooled
  double unique_ = 1;
};

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_BENCHMARK_BATCHES_H_
