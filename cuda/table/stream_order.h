#ifndef SOK_CUDA_TABLE_STREAM_ORDER_H_
#define SOK_CUDA_TABLE_STREAM_ORDER_H_

#include <cuda_runtime.h>

#include <optional>

#include "cc/base/status.h"
#include "cuda/base/cuda_status.h"

namespace sok {

// Work on one object that calls enqueue on streams of their own choice: each call's work comes after that of
// the call before. One call at a time. Not copyable.
class StreamOrder {
 public:
  StreamOrder() = default;
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;
  ~StreamOrder() {
    if (last_work_ != nullptr && cudaEventDestroy(last_work_) != cudaSuccess) cudaGetLastError();
  }

  // Orders later work on the stream after the work of the last call.
  Status Enter(cudaStream_t stream) {
    if (!last_stream_.has_value() || *last_stream_ == stream) return OkStatus();
    return CudaStatus(cudaStreamWaitEvent(stream, last_work_, 0), "cannot order two streams");
  }

  // Must be called when the call has enqueued its work on the stream.
  Status Leave(cudaStream_t stream) {
    if (last_work_ == nullptr) {
      SOK_RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(&last_work_, cudaEventDisableTiming),
                               "cannot make an event");
    }
    SOK_RETURN_IF_CUDA_ERROR(cudaEventRecord(last_work_, stream), "cannot record an event");
    last_stream_ = stream;
    return OkStatus();
  }

  // Waits until the work of all calls is done. Device errors are reported elsewhere.
  void Wait() const {
    if (last_work_ != nullptr && cudaEventSynchronize(last_work_) != cudaSuccess) cudaGetLastError();
  }

  // The stream of the last call.
  cudaStream_t last_stream() const { return last_stream_.value_or(nullptr); }

 private:
  cudaEvent_t last_work_ = nullptr;
  std::optional<cudaStream_t> last_stream_;
};

}  // namespace sok

#endif  // SOK_CUDA_TABLE_STREAM_ORDER_H_
