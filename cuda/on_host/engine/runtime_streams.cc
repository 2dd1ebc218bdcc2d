// Streams and events.
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/on_host/engine/runtime.h"
#include "cuda/on_host/engine/schedule.h"
#include "cuda/on_host/on_host.h"

namespace sok::on_host {

cudaError_t FindStream(cudaStream_t handle, CUstream_st** stream) {
  if (const cudaError_t error = CheckUsableHere()) return error;
  *stream = Queues().Find(handle);
  return *stream == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess;
}

int64_t PendingWork() { return Queues().Pending(); }

namespace {

std::mutex events_mutex;
std::vector<std::unique_ptr<CUevent_st>>& Events() {
  static auto& events = *new std::vector<std::unique_ptr<CUevent_st>>();
  return events;
}

CUevent_st* FindEvent(cudaEvent_t handle) {
  const std::lock_guard<std::mutex> lock(events_mutex);
  for (const auto& event : Events()) {
    if (event.get() == handle) return event->is_destroyed ? nullptr : handle;
  }
  return nullptr;
}

MarkPtr RecordedIn(const CUevent_st& event) {
  const std::lock_guard<std::mutex> lock(events_mutex);
  return event.recorded;
}

}  // namespace
}  // namespace sok::on_host

using namespace sok::on_host;  // NOLINT: the functions below are CUDA's, in the global namespace

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = CheckUsableHere()) return Result(error);
  Queues().WaitForAll();
  MemoryPool::Get().TrimToThreshold();
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (stream == nullptr || flags > cudaStreamNonBlocking) return Result(cudaErrorInvalidValue);
  if (const cudaError_t error = CheckUsableHere()) return Result(error);
  *stream = Queues().Create(flags != cudaStreamNonBlocking);
  return cudaSuccess;
}
// The stream's work still runs.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  if (const cudaError_t error = CheckUsableHere()) return Result(error);
  CUstream_st* const stream = Queues().Find(handle);
  if (stream == nullptr || handle == nullptr) return Result(cudaErrorInvalidResourceHandle);
  Queues().Destroy(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return Result(error);
  Queues().WaitFor(Queues().Last(stream));
  MemoryPool::Get().TrimToThreshold();
  return cudaSuccess;
}
// cudaErrorNotReady is not recorded for cudaGetLastError.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return Result(error);
  return Queues().IsDone(Queues().Last(stream)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return Result(error);
  const CUevent_st* const event = FindEvent(event_handle);
  if (event == nullptr) return Result(cudaErrorInvalidResourceHandle);
  if (flags != cudaEventWaitDefault) return Result(cudaErrorInvalidValue);
  if (MarkPtr recorded = RecordedIn(*event))
    Queues().Enqueue(stream, [](CUstream_st*) {}, {std::move(recorded)});
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  if (function == nullptr) return Result(cudaErrorInvalidValue);
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return Result(error);
  Queues().Enqueue(stream, [=](CUstream_st* of) { StreamQueues::CallHostFunction(of, function, data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (event == nullptr || (flags & ~cudaEventDisableTiming) != 0) {
    return Result(cudaErrorInvalidValue);
  }
  if (const cudaError_t error = CheckUsableHere()) return Result(error);
  const std::lock_guard<std::mutex> lock(events_mutex);
  Events().push_back(std::make_unique<CUevent_st>((flags & cudaEventDisableTiming) == 0));
  *event = Events().back().get();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  if (const cudaError_t error = CheckUsableHere()) return Result(error);
  CUevent_st* const event = FindEvent(handle);
  if (event == nullptr) return Result(cudaErrorInvalidResourceHandle);
  const std::lock_guard<std::mutex> lock(events_mutex);
  event->is_destroyed = true;
  event->recorded = nullptr;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(stream_handle, &stream)) return Result(error);
  CUevent_st* const event = FindEvent(handle);
  if (event == nullptr) return Result(cudaErrorInvalidResourceHandle);
  CountEvent();
  MarkPtr recorded = Queues().Enqueue(stream, [](CUstream_st*) {});
  const std::lock_guard<std::mutex> lock(events_mutex);
  event->recorded = std::move(recorded);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  if (const cudaError_t error = CheckUsableHere()) return Result(error);
  const CUevent_st* const event = FindEvent(handle);
  if (event == nullptr) return Result(cudaErrorInvalidResourceHandle);
  Queues().WaitFor(RecordedIn(*event));
  MemoryPool::Get().TrimToThreshold();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  if (const cudaError_t error = CheckUsableHere()) return Result(error);
  const CUevent_st* const event = FindEvent(handle);
  if (event == nullptr) return Result(cudaErrorInvalidResourceHandle);
  return Queues().IsDone(RecordedIn(*event)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (milliseconds == nullptr) return Result(cudaErrorInvalidValue);
  if (const cudaError_t error = CheckUsableHere()) return Result(error);
  const CUevent_st *const first = FindEvent(start), *const second = FindEvent(end);
  if (first == nullptr || second == nullptr || !first->has_time || !second->has_time) {
    return Result(cudaErrorInvalidResourceHandle);
  }
  const MarkPtr begun = RecordedIn(*first), ended = RecordedIn(*second);
  if (begun == nullptr || ended == nullptr) return Result(cudaErrorInvalidResourceHandle);
  if (!Queues().IsDone(begun) || !Queues().IsDone(ended)) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(ended->time - begun->time).count();
  return cudaSuccess;
}
