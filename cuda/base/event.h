// A point in a stream.
#ifndef SOK_CUDA_BASE_EVENT_H_
#define SOK_CUDA_BASE_EVENT_H_

#include <cuda_runtime.h>

#include <utility>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"

namespace sok {

// Move-only. The first Record creates the CUDA event, so an object that holds an Event needs no device. One
// thread at a time.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr && cudaEventDestroy(event_) != cudaSuccess) cudaGetLastError();
  }

  // Records everything that is in the stream now, in place of the last Record.
  Status Record(cudaStream_t stream) {
    if (event_ == nullptr) {
      SOK_RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming),
                               "cannot make an event");
    }
    return CudaStatus(cudaEventRecord(event_, stream), "cannot record an event");
  }

  // Whether all recorded work has run; true if nothing was recorded.
  bool IsDone() const {
    if (event_ == nullptr) return true;
    const cudaError_t error = cudaEventQuery(event_);
    if (error != cudaSuccess) cudaGetLastError();
    return error != cudaErrorNotReady;
  }

  // Waits until all recorded work has run. Returns the device's error if that work failed.
  Status Wait() const {
    return event_ == nullptr ? OkStatus()
                             : CudaStatus(cudaEventSynchronize(event_), "cannot wait for the device");
  }

  // Orders later work on the stream after all recorded work.
  Status OrderBefore(cudaStream_t stream) const {
    return event_ == nullptr ? OkStatus()
                             : CudaStatus(cudaStreamWaitEvent(stream, event_, 0), "cannot order two streams");
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_EVENT_H_
