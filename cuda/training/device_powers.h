#ifndef SOK_CUDA_TRAINING_DEVICE_POWERS_H_
#define SOK_CUDA_TRAINING_DEVICE_POWERS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/optimizers/decay.h"
#include "cuda/base/device_allocator.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/staged_upload.h"

namespace sok {

// Tables of powers (cc/optimizers/decay.h) on the device.
class DevicePowers {
 public:
  // Sends the host's tables to memory from `memory`; `upload` must be empty. ResourceExhausted if memory runs
  // out.
  static StatusOr<DevicePowers> Send(cudaStream_t stream, DeviceAllocator* memory, StagedUpload* upload,
                                     Span<const Powers> host);

  // Sets the stream on which the memory will be freed.
  void set_stream(cudaStream_t stream) { memory_.set_stream(stream); }

  // Table k, for kernels.
  const Powers& operator[](int64_t k) const { return powers_[static_cast<size_t>(k)]; }

 private:
  DeviceBuffer<char> memory_;
  std::vector<Powers> powers_;
};

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_DEVICE_POWERS_H_
