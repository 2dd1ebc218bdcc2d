#ifndef SOK_CUDA_TRAINING_DEVICE_ADAM_HISTORY_H_
#define SOK_CUDA_TRAINING_DEVICE_ADAM_HISTORY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/optimizers/adam_history.h"
#include "cc/optimizers/decay.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"

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

// AdamHistory (cc/optimizers/adam_history.h) in device memory: the past steps that exact Adam remembers. A
// step is appended there, by one small kernel for all tables of a group, so nothing is copied from the host.
// One thread at a time; work is in the order of one stream, or of streams that wait for each other.
class DeviceAdamHistory {
 public:
  // A history of these past steps, if there are any. `upload` must be empty. ResourceExhausted if memory runs
  // out.
  static StatusOr<std::unique_ptr<DeviceAdamHistory>> Make(cudaStream_t stream, DeviceAllocator* memory,
                                                           StagedUpload* upload, float beta1, float beta2,
                                                           Span<const float> alphas);

  float beta1() const { return view_.beta1; }
  float beta2() const { return view_.beta2; }
  int64_t steps() const { return view_.steps; }
  // The rates of steps 1 ... steps(), on the host.
  const std::vector<float>& alphas() const { return alphas_; }

  // Sets the stream on which the memory will be freed. Every use must come before later work on that stream.
  void set_stream(cudaStream_t stream);

  // For kernels that are enqueued on the stream before the next ReserveStep or Append.
  const AdamHistoryView& view() const { return view_; }

  // Makes room for another step. This may move the arrays, so make views afterwards. ResourceExhausted if
  // memory runs out.
  Status ReserveStep(cudaStream_t stream);

  // A history, and the rate of the step to append. Needs a ReserveStep.
  struct Step {
    DeviceAdamHistory* history;
    float alpha;
  };
  // Appends a step to each history. Internal if the kernel cannot be launched.
  static Status Append(cudaStream_t stream, Span<const Step> steps);

 private:
  DeviceAdamHistory(DeviceAllocator* memory, float beta1, float beta2)
      : memory_(memory), series_(beta1, beta2) {}

  Status Reserve(cudaStream_t stream, int64_t steps);

  DeviceAllocator* memory_;
  AdamSeries series_;
  DevicePowers powers_;
  DeviceBuffer<char> increments_memory_;
  const double* increments_ = nullptr;  // [horizon, terms] on the device
  int64_t capacity_ = 0;                // steps that there is room for
  DeviceBuffer<double> coefficients_;
  DeviceBuffer<float> device_alphas_;
  std::vector<float> alphas_;
  AdamHistoryView view_;
};

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_DEVICE_ADAM_HISTORY_H_
