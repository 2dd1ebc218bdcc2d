// A TensorFlow device plugin whose /GPU:0 has the memory and the streams of CUDA's runtime. Tests link it
// with the runtime on the host (cuda/on_host): only kernels and copies can touch that memory, and streams run
// late. Linked with the real runtime, it gives a TensorFlow for CPUs the machine's first GPU. Most of
// TensorFlow's ops have no kernels there (host_kernels.h), so TensorFlow runs them on the CPU, and copies
// tensors when an op of this library takes or gives them.
//
// An SP_Stream is a cudaStream_t, and an SP_Event a cudaEvent_t: kernels find their stream by TF_GetStream.
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/tf_status.h"
#include "tests/fake_gpu/host_kernels.h"

#ifdef SOK_ON_HOST  // the runtime on the host
#include "cuda/on_host/on_host.h"
#endif

struct SP_Timer_st {
  cudaEvent_t begin, end;
};

namespace {

cudaStream_t Cuda(SP_Stream stream) { return reinterpret_cast<cudaStream_t>(stream); }
cudaEvent_t Cuda(SP_Event event) { return reinterpret_cast<cudaEvent_t>(event); }

void Set(cudaError_t error, const char* what, TF_Status* status) {
  if (error == cudaSuccess) return TF_SetStatus(status, TF_OK, "");
  TF_SetStatus(status, TF_INTERNAL, (std::string(what) + ": " + cudaGetErrorString(error)).c_str());
}

// --- Memory ---

std::atomic<int64_t> bytes_to_device{0};
std::atomic<int64_t> bytes_to_host{0};

void Allocate(const SP_Device*, uint64_t size, int64_t, SP_DeviceMemoryBase* memory) {
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->ext = nullptr;
  memory->opaque = nullptr;
  memory->payload = 0;
  memory->size = cudaMalloc(&memory->opaque, size) == cudaSuccess ? size : 0;
}
void Deallocate(const SP_Device*, SP_DeviceMemoryBase* memory) {
  cudaFree(memory->opaque);
  memory->opaque = nullptr;
  memory->size = 0;
}
void* HostAllocate(const SP_Device*, uint64_t size) {
  void* memory = nullptr;
  return cudaHostAlloc(&memory, size, cudaHostAllocDefault) == cudaSuccess ? memory : nullptr;
}
void HostDeallocate(const SP_Device*, void* memory) { cudaFreeHost(memory); }
TF_Bool AllocatorStats(const SP_Device*, SP_AllocatorStats*) { return 0; }

// As a session takes nearly all of a GPU's memory, the GPU on the host has little: it is filled at once.
// Below 255 MiB TensorFlow leaves nothing to others.
#ifdef SOK_ON_HOST
constexpr size_t kMemory = size_t{192} << 20;
constexpr int64_t kForOthers = int64_t{1} << 20;
void LimitMemory() { sok::on_host::SetDeviceMemoryLimit(kMemory); }
#else
constexpr int64_t kForOthers = 0;
void LimitMemory() {}
#endif

TF_Bool MemoryUsage(const SP_Device*, int64_t* free_bytes, int64_t* total_bytes) {
  size_t free_now = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free_now, &total) != cudaSuccess) return 0;
  *free_bytes = static_cast<int64_t>(free_now) - kForOthers;
  *total_bytes = static_cast<int64_t>(total);
  return 1;
}

// --- Streams, events, timers ---

// TensorFlow makes the stream of a device's kernels before those of its copies.
std::atomic<SP_Stream> kernel_stream{nullptr};

// Non-blocking, as TensorFlow's own: nothing orders them but events.
void CreateStream(const SP_Device*, SP_Stream* stream, TF_Status* status) {
  cudaStream_t made = nullptr;
  Set(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "create stream", status);
  *stream = reinterpret_cast<SP_Stream>(made);
  SP_Stream none = nullptr;
  kernel_stream.compare_exchange_strong(none, *stream);
}
void DestroyStream(const SP_Device*, SP_Stream stream) {
  SP_Stream destroyed = stream;
  kernel_stream.compare_exchange_strong(destroyed, nullptr);
  cudaStreamDestroy(Cuda(stream));
}
void StreamStatus(const SP_Device*, SP_Stream, TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }

void CreateEvent(const SP_Device*, SP_Event* event, TF_Status* status) {
  cudaEvent_t made = nullptr;
  Set(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "create event", status);
  *event = reinterpret_cast<SP_Event>(made);
}
void DestroyEvent(const SP_Device*, SP_Event event) { cudaEventDestroy(Cuda(event)); }
SE_EventStatus EventStatus(const SP_Device*, SP_Event event) {
  const cudaError_t error = cudaEventQuery(Cuda(event));
  return error == cudaSuccess         ? SE_EVENT_COMPLETE
         : error == cudaErrorNotReady ? SE_EVENT_PENDING
                                      : SE_EVENT_ERROR;
}
void RecordEvent(const SP_Device*, SP_Stream stream, SP_Event event, TF_Status* status) {
  Set(cudaEventRecord(Cuda(event), Cuda(stream)), "record event", status);
}
void WaitForEvent(const SP_Device*, SP_Stream stream, SP_Event event, TF_Status* status) {
  Set(cudaStreamWaitEvent(Cuda(stream), Cuda(event), cudaEventWaitDefault), "wait for event", status);
}
void StreamAfterStream(const SP_Device* device, SP_Stream next, SP_Stream first, TF_Status* status) {
  // One event for all: a stream waits for what the event has recorded when it is told to.
  static std::mutex mutex;
  static SP_Event event = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (event == nullptr) CreateEvent(device, &event, status);
  if (event != nullptr) RecordEvent(device, first, event, status);
  if (TF_GetCode(status) == TF_OK) WaitForEvent(device, next, event, status);
}
void HostAfterEvent(const SP_Device*, SP_Event event, TF_Status* status) {
  Set(cudaEventSynchronize(Cuda(event)), "wait for event", status);
}
void HostAfterStream(const SP_Device*, SP_Stream stream, TF_Status* status) {
  Set(cudaStreamSynchronize(Cuda(stream)), "wait for stream", status);
}
void HostAfterAll(const SP_Device*, TF_Status* status) { Set(cudaDeviceSynchronize(), "wait", status); }

struct Callback {
  SE_StatusCallbackFn function;
  void* argument;
};
TF_Bool HostCallback(const SP_Device*, SP_Stream stream, SE_StatusCallbackFn function, void* argument) {
  auto callback = std::make_unique<Callback>(Callback{function, argument});
  const auto call = [](void* data) {
    const std::unique_ptr<Callback> of(static_cast<Callback*>(data));
    TF_Status* const status = TF_NewStatus();
    of->function(of->argument, status);
    TF_DeleteStatus(status);
  };
  if (cudaLaunchHostFunc(Cuda(stream), call, callback.get()) != cudaSuccess) return 0;
  callback.release();
  return 1;
}

void CreateTimer(const SP_Device*, SP_Timer* timer, TF_Status* status) {
  *timer = new SP_Timer_st{};
  cudaError_t error = cudaEventCreate(&(*timer)->begin);
  if (error == cudaSuccess) error = cudaEventCreate(&(*timer)->end);
  Set(error, "create timer", status);
}
void DestroyTimer(const SP_Device*, SP_Timer timer) {
  cudaEventDestroy(timer->begin);
  cudaEventDestroy(timer->end);
  delete timer;
}
void StartTimer(const SP_Device*, SP_Stream stream, SP_Timer timer, TF_Status* status) {
  Set(cudaEventRecord(timer->begin, Cuda(stream)), "start timer", status);
}
void StopTimer(const SP_Device*, SP_Stream stream, SP_Timer timer, TF_Status* status) {
  Set(cudaEventRecord(timer->end, Cuda(stream)), "stop timer", status);
}
uint64_t Nanoseconds(SP_Timer timer) {
  float milliseconds = 0;
  cudaEventSynchronize(timer->end);
  if (cudaEventElapsedTime(&milliseconds, timer->begin, timer->end) != cudaSuccess) return 0;
  return static_cast<uint64_t>(milliseconds * 1e6f);
}

// --- Copies ---

void CopyOut(const SP_Device*, SP_Stream stream, void* to, const SP_DeviceMemoryBase* from, uint64_t size,
             TF_Status* status) {
  bytes_to_host += static_cast<int64_t>(size);
  Set(cudaMemcpyAsync(to, from->opaque, size, cudaMemcpyDeviceToHost, Cuda(stream)), "copy to host", status);
}
// The pool gives out memory that kernels in their stream still use. TensorFlow lets its copies wait for that
// stream, except on a plugin's device for constants, which it copies when a graph first runs: then another
// thread's step may be running. Its own GPU device waits there too.
void CopyIn(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* to, const void* from,
            uint64_t size, TF_Status* status) {
  bytes_to_device += static_cast<int64_t>(size);
  const SP_Stream kernels = kernel_stream;
  if (kernels != nullptr && kernels != stream) StreamAfterStream(device, stream, kernels, status);
  if (TF_GetCode(status) != TF_OK) return;
  Set(cudaMemcpyAsync(to->opaque, from, size, cudaMemcpyHostToDevice, Cuda(stream)), "copy to device",
      status);
}
void CopyWithin(const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
                uint64_t size, TF_Status* status) {
  Set(cudaMemcpyAsync(to->opaque, from->opaque, size, cudaMemcpyDeviceToDevice, Cuda(stream)), "copy",
      status);
}
void CopyOutNow(const SP_Device*, void* to, const SP_DeviceMemoryBase* from, uint64_t size,
                TF_Status* status) {
  bytes_to_host += static_cast<int64_t>(size);
  Set(cudaMemcpy(to, from->opaque, size, cudaMemcpyDeviceToHost), "copy to host", status);
}
void CopyInNow(const SP_Device*, SP_DeviceMemoryBase* to, const void* from, uint64_t size,
               TF_Status* status) {
  bytes_to_device += static_cast<int64_t>(size);
  Set(cudaMemcpy(to->opaque, from, size, cudaMemcpyHostToDevice), "copy to device", status);
}
void CopyWithinNow(const SP_Device*, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from, uint64_t size,
                   TF_Status* status) {
  Set(cudaMemcpy(to->opaque, from->opaque, size, cudaMemcpyDeviceToDevice), "copy", status);
}
void SetBytes(const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* at, uint8_t pattern, uint64_t size,
              TF_Status* status) {
  Set(cudaMemsetAsync(at->opaque, pattern, size, Cuda(stream)), "fill", status);
}
void SetZero(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* at, uint64_t size,
             TF_Status* status) {
  SetBytes(device, stream, at, 0, size, status);
}

// The runtime fills with bytes only. It reads memory that is not pinned before it returns.
void SetWords(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* at, uint32_t pattern,
              uint64_t size, TF_Status* status) {
  const std::vector<uint32_t> words(size / sizeof(pattern), pattern);
  CopyIn(device, stream, at, words.data(), size, status);
}

// --- What TensorFlow asks a plugin for ---

// The first device only: no other is ever made current. None in a process that was forked after CUDA was
// used: it still knows the number of devices, but cannot use them.
void DeviceCount(const SP_Platform*, int* count, TF_Status* status) {
  int devices = 0;
  size_t free_bytes = 0, total_bytes = 0;
  const bool has_device = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  *count = has_device && cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess ? 1 : 0;
  TF_SetStatus(status, TF_OK, "");
}
void CreateDevice(const SP_Platform*, SE_CreateDeviceParams* params, TF_Status* status) {
  params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
  params->device->ordinal = static_cast<int32_t>(params->ordinal);
  params->device->hardware_name = "CUDA device 0";
  params->device->device_vendor = "none";
  params->device->pci_bus_id = "0000:00:00.0";
  TF_SetStatus(status, TF_OK, "");
}
void CreateDeviceFns(const SP_Platform*, SE_CreateDeviceFnsParams* params, TF_Status* status) {
  params->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
  TF_SetStatus(status, TF_OK, "");
}
void CreateTimerFns(const SP_Platform*, SP_TimerFns* fns, TF_Status* status) {
  fns->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
  fns->nanoseconds = Nanoseconds;
  TF_SetStatus(status, TF_OK, "");
}
void CreateExecutor(const SP_Platform*, SE_CreateStreamExecutorParams* params, TF_Status* status) {
  SP_StreamExecutor* const to = params->stream_executor;
  to->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  to->allocate = Allocate;
  to->deallocate = Deallocate;
  to->host_memory_allocate = HostAllocate;
  to->host_memory_deallocate = HostDeallocate;
  to->get_allocator_stats = AllocatorStats;
  to->device_memory_usage = MemoryUsage;
  to->create_stream = CreateStream;
  to->destroy_stream = DestroyStream;
  to->create_stream_dependency = StreamAfterStream;
  to->get_stream_status = StreamStatus;
  to->create_event = CreateEvent;
  to->destroy_event = DestroyEvent;
  to->get_event_status = EventStatus;
  to->record_event = RecordEvent;
  to->wait_for_event = WaitForEvent;
  to->create_timer = CreateTimer;
  to->destroy_timer = DestroyTimer;
  to->start_timer = StartTimer;
  to->stop_timer = StopTimer;
  to->memcpy_dtoh = CopyOut;
  to->memcpy_htod = CopyIn;
  to->memcpy_dtod = CopyWithin;
  to->sync_memcpy_dtoh = CopyOutNow;
  to->sync_memcpy_htod = CopyInNow;
  to->sync_memcpy_dtod = CopyWithinNow;
  to->block_host_for_event = HostAfterEvent;
  to->block_host_until_done = HostAfterStream;
  to->synchronize_all_activity = HostAfterAll;
  to->mem_zero = SetZero;
  to->memset = SetBytes;
  to->memset32 = SetWords;
  to->host_callback = HostCallback;
  TF_SetStatus(status, TF_OK, "");
}

}  // namespace

#define SOK_EXPORT extern "C" __attribute__((visibility("default")))

// Bytes that TensorFlow has copied to the device and to the host so far. For tests, through ctypes.
SOK_EXPORT int64_t SokFakeGpuBytesToDevice() { return bytes_to_device; }
SOK_EXPORT int64_t SokFakeGpuBytesToHost() { return bytes_to_host; }

SOK_EXPORT void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status* status) {
  AddHostKernels();
  LimitMemory();
  params->major_version = SE_MAJOR;
  params->minor_version = SE_MINOR;
  params->patch_version = SE_PATCH;
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  params->platform->name = "SOK_FAKE_GPU";
  params->platform->type = "GPU";
  params->platform->supports_unified_memory = 0;
  // TensorFlow's own pool, which gives freed memory out again in the order of the stream of kernels. As on
  // its own GPU devices, it takes nearly all memory at once, unless the session's options say otherwise.
  params->platform->use_bfc_allocator = 1;
  params->platform->force_memory_growth = 0;
  params->destroy_platform = [](SP_Platform*) {};
  params->destroy_platform_fns = [](SP_PlatformFns*) {};
  params->platform_fns->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  params->platform_fns->get_device_count = DeviceCount;
  params->platform_fns->create_device = CreateDevice;
  params->platform_fns->destroy_device = [](const SP_Platform*, SP_Device*) {};
  params->platform_fns->create_device_fns = CreateDeviceFns;
  params->platform_fns->destroy_device_fns = [](const SP_Platform*, SP_DeviceFns*) {};
  params->platform_fns->create_stream_executor = CreateExecutor;
  params->platform_fns->destroy_stream_executor = [](const SP_Platform*, SP_StreamExecutor*) {};
  params->platform_fns->create_timer_fns = CreateTimerFns;
  params->platform_fns->destroy_timer_fns = [](const SP_Platform*, SP_TimerFns*) {};
  TF_SetStatus(status, TF_OK, "");
}
