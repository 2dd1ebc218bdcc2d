// CUDA's runtime API. Each function checks its arguments as CUDA does, and keeps its error for
// cudaGetLastError.
#include "cuda_on_host/runtime_api.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/on_host/engine/device_memory.h"
#include "cuda/on_host/engine/grid.h"
#include "cuda/on_host/engine/report.h"
#include "cuda/on_host/engine/streams.h"
#include "cuda/on_host/on_host.h"
#include "cuda_on_host/launch.h"

namespace sok::on_host {
namespace {

// Of a small GPU of the Hopper kind: few multiprocessors, so that launchers that fill it start few blocks.
constexpr int kMultiprocessors = 4;
constexpr int kMaxThreadsOfMultiprocessor = 2048;
constexpr int kMaxBlocksOfMultiprocessor = 32;
constexpr size_t kSharedOfMultiprocessor = size_t{228} << 10;
constexpr size_t kDefaultMaxShared = size_t{48} << 10;
constexpr int kMajor = 9, kMinor = 0;
constexpr int kMaxCooperativeBlocks = 64;
constexpr unsigned kMaxGridX = 0x7fffffff, kMaxGridYZ = 0xffff, kMaxBlockZ = 64;

__thread cudaError_t last_error;

cudaError_t Result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

StreamQueues& Queues() { return StreamQueues::Get(); }
DeviceMemory& Memory() { return DeviceMemory::Get(); }

// The stream of a handle, for a call that a function of cudaLaunchHostFunc must not make.
cudaError_t FindStream(cudaStream_t handle, CUstream_st** stream) {
  if (StreamQueues::InHostFunction()) return cudaErrorNotPermitted;
  *stream = Queues().Find(handle);
  return *stream == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess;
}

// ---- Events that are alive. ----

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

// ---- Copies. ----

enum class Side { kPageable, kPinned, kDevice, kInvalid };

// Where the bytes are. Invalid: not within one allocation that is alive or about to be.
Side SideOf(const void* address, size_t bytes) {
  if (!Memory().Owns(address)) return address == nullptr ? Side::kInvalid : Side::kPageable;
  const Allocation* const found = Memory().Find(address);
  if (found == nullptr || found->state == AllocationState::kFreed) return Side::kInvalid;
  const auto offset = static_cast<size_t>(static_cast<const char*>(address) - found->address);
  if (offset > found->bytes || bytes > found->bytes - offset) return Side::kInvalid;
  return found->kind == MemoryKind::kDevice ? Side::kDevice : Side::kPinned;
}

bool IsAllowed(cudaMemcpyKind kind, Side to, Side from) {
  const auto host = [](Side side) { return side != Side::kDevice; };
  const auto device = [](Side side) { return side != Side::kPageable; };  // pinned memory is the device's too
  switch (kind) {
    case cudaMemcpyHostToHost:
      return host(to) && host(from);
    case cudaMemcpyHostToDevice:
      return device(to) && host(from);
    case cudaMemcpyDeviceToHost:
      return host(to) && device(from);
    case cudaMemcpyDeviceToDevice:
      return device(to) && device(from);
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// When the work runs: memory that was given up while it waited is a mistake of the program.
void CheckUsable(const char* what, const void* address) {
  const Allocation* const found = Memory().Find(address);
  if (Memory().Owns(address) && (found == nullptr || found->state != AllocationState::kLive)) {
    Report({}, "%s, when its stream reached it, touched %s", what, DescribeAddress(address).c_str());
  }
}

Work CopyWork(void* to, const void* from, size_t bytes, std::shared_ptr<std::vector<char>> staged) {
  return [=](CUstream_st* stream) {
    CheckUsable("a copy", to);
    if (staged == nullptr) CheckUsable("a copy", from);
    const DeviceAccess access;
    const AsStream as_stream(stream);
    std::memmove(to, staged == nullptr ? from : staged->data(), bytes);
  };
}

// How a copy looks from the host, by CUDA's "API synchronization behavior".
struct CopyCall {
  void* to;
  const void* from;
  size_t bytes;
  cudaMemcpyKind kind;
  bool is_async;
};

cudaError_t Copy(const CopyCall& call, cudaStream_t handle) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return error;
  if (static_cast<unsigned>(call.kind) > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (call.bytes == 0) return cudaSuccess;
  const Side to = SideOf(call.to, call.bytes), from = SideOf(call.from, call.bytes);
  if (to == Side::kInvalid || from == Side::kInvalid || !IsAllowed(call.kind, to, from))
    return cudaErrorInvalidValue;

  std::shared_ptr<std::vector<char>> staged;
  if (from == Side::kPageable && to == Side::kDevice) {
    if (!call.is_async) Queues().WaitFor(Queues().Last(stream));
    const char* const bytes = static_cast<const char*>(call.from);
    staged = std::make_shared<std::vector<char>>(call.bytes);
    std::memcpy(staged->data(), bytes, call.bytes);
  }
  const bool on_host = to != Side::kDevice && from != Side::kDevice;
  const bool only_on_device = to == Side::kDevice && from == Side::kDevice;
  const bool waits =
      on_host || to == Side::kPageable || (!call.is_async && staged == nullptr && !only_on_device);
  const MarkPtr done = Queues().Enqueue(stream, CopyWork(call.to, call.from, call.bytes, std::move(staged)));
  if (waits) Queues().WaitFor(done);
  return cudaSuccess;
}

cudaError_t Set(void* address, int byte, size_t bytes, cudaStream_t handle, bool is_async) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return error;
  if (bytes == 0) return cudaSuccess;
  const Side side = SideOf(address, bytes);
  if (side != Side::kDevice && side != Side::kPinned) return cudaErrorInvalidValue;
  const MarkPtr done = Queues().Enqueue(stream, [=](CUstream_st* of) {
    CheckUsable("a memset", address);
    const DeviceAccess access;
    const AsStream as_stream(of);
    std::memset(address, byte, bytes);
  });
  if (!is_async && side == Side::kPinned) Queues().WaitFor(done);
  return cudaSuccess;
}

// ---- Allocations. ----

cudaError_t AllocateNow(void** address, size_t bytes, MemoryKind kind) {
  if (address == nullptr) return cudaErrorInvalidValue;
  if (StreamQueues::InHostFunction()) return cudaErrorNotPermitted;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  const Allocation* const allocation = Memory().Allocate(bytes, kind, true);
  if (allocation == nullptr) return cudaErrorMemoryAllocation;
  *address = allocation->address;
  return cudaSuccess;
}

// The allocation that begins at `address` and was not given back; null if there is none.
Allocation* FindBegin(const void* address, MemoryKind kind) {
  Allocation* const found = Memory().Find(address);
  if (found == nullptr || found->address != address || found->kind != kind) return nullptr;
  return found->state == AllocationState::kFreed || found->free_enqueued ? nullptr : found;
}

// ---- Launches. ----

std::mutex kernels_mutex;
std::map<const void*, size_t>& MaxDynamicShared() {
  static auto& bytes = *new std::map<const void*, size_t>();
  return bytes;
}

size_t MaxDynamicSharedOf(const void* kernel) {
  const std::lock_guard<std::mutex> lock(kernels_mutex);
  const auto found = MaxDynamicShared().find(kernel);
  return found == MaxDynamicShared().end() ? kDefaultMaxShared : found->second;
}

bool IsCooperative(const cudaLaunchConfig_t& config) {
  for (unsigned a = 0; a < config.numAttrs; ++a) {
    if (config.attrs[a].id == cudaLaunchAttributeCooperative) return config.attrs[a].val.cooperative != 0;
  }
  return false;
}

cudaError_t CheckLaunch(const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0 ||
      grid.x > kMaxGridX || grid.y > kMaxGridYZ || grid.z > kMaxGridYZ || block.z > kMaxBlockZ ||
      block.x > kMaxThreadsOfBlock || block.y > kMaxThreadsOfBlock ||
      block.x * block.y * block.z > kMaxThreadsOfBlock) {
    return cudaErrorInvalidConfiguration;
  }
  if (config.dynamicSmemBytes > MaxDynamicSharedOf(kernel)) return cudaErrorInvalidValue;
  if (IsCooperative(config) && uint64_t{grid.x} * grid.y * grid.z > kMaxCooperativeBlocks) {
    return cudaErrorCooperativeLaunchTooLarge;
  }
  return cudaSuccess;
}

void RunKernelWork(const LaunchShape& shape, const KernelCall& call, CUstream_st* stream) {
  Grid grid(shape, call, &stream->tsan_threads);
  {
    const AsStream as_stream(stream);
    grid.begin().Release();
  }
  grid.Run();
  const AsStream as_stream(stream);
  grid.end().Acquire();
}

cudaError_t Enqueue(const cudaLaunchConfig_t* config, KernelCall call) {
  if (config == nullptr) return cudaErrorInvalidValue;
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(config->stream, &stream)) return error;
  const cudaError_t error = CheckLaunch(*config, call.kernel);
  if (error != cudaSuccess) return error;
  const LaunchShape shape = {config->gridDim, config->blockDim, config->dynamicSmemBytes,
                             IsCooperative(*config)};
  Queues().Enqueue(stream,
                   [shape, call = std::move(call)](CUstream_st* of) { RunKernelWork(shape, call, of); });
  return cudaSuccess;
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

}  // namespace

cudaError_t EnqueueKernel(const cudaLaunchConfig_t* config, KernelCall call) {
  return Result(Enqueue(config, std::move(call)));
}

int64_t PendingWork() { return Queues().Pending(); }
size_t DeviceBytesInUse() { return Memory().device_bytes_in_use(); }
void SetDeviceMemoryLimit(size_t bytes) { Memory().SetLimit(bytes); }

}  // namespace sok::on_host

using namespace sok::on_host;  // NOLINT: the functions below are CUDA's, in the global namespace

cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
const char* cudaGetErrorString(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return known.text;
  }
  return "unrecognized error code";
}
const char* cudaGetErrorName(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return known.name;
  }
  return "unrecognized error code";
}

// ---- The device. ----

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return Result(cudaErrorInvalidValue);
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return Result(cudaErrorInvalidValue);
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return Result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return Result(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (properties == nullptr) return Result(cudaErrorInvalidValue);
  if (device != 0) return Result(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "CUDA on the host");
  properties->totalGlobalMem = Memory().limit();
  properties->sharedMemPerBlock = kDefaultMaxShared;
  properties->sharedMemPerBlockOptin = kMaxDynamicShared;
  properties->sharedMemPerMultiprocessor = kSharedOfMultiprocessor;
  properties->warpSize = kWarpSize;
  properties->maxThreadsPerBlock = kMaxThreadsOfBlock;
  properties->maxThreadsPerMultiProcessor = kMaxThreadsOfMultiprocessor;
  properties->multiProcessorCount = kMultiprocessors;
  properties->major = kMajor;
  properties->minor = kMinor;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (value == nullptr) return Result(cudaErrorInvalidValue);
  if (device != 0) return Result(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = kMaxThreadsOfBlock;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(kDefaultMaxShared);
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = kWarpSize;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = kMultiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = kMaxThreadsOfMultiprocessor;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = kMajor;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = kMinor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(kSharedOfMultiprocessor);
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(kMaxDynamicShared);
      return cudaSuccess;
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      return cudaSuccess;
  }
  return Result(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSynchronize() {
  if (StreamQueues::InHostFunction()) return Result(cudaErrorNotPermitted);
  Queues().WaitForAll();
  return cudaSuccess;
}

// ---- Memory. ----

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return Result(AllocateNow(address, bytes, MemoryKind::kDevice));
}
cudaError_t cudaMallocHost(void** address, size_t bytes, unsigned flags) {
  return cudaHostAlloc(address, bytes, flags);
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned flags) {
  constexpr unsigned kKnown = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if ((flags & ~kKnown) != 0) return Result(cudaErrorInvalidValue);
  return Result(AllocateNow(address, bytes, MemoryKind::kPinned));
}

// Waits for all work, as CUDA's does.
cudaError_t cudaFree(void* address) {
  if (StreamQueues::InHostFunction()) return Result(cudaErrorNotPermitted);
  if (address == nullptr) return cudaSuccess;
  Allocation* const allocation = FindBegin(address, MemoryKind::kDevice);
  if (allocation == nullptr) return Result(cudaErrorInvalidValue);
  Queues().WaitForAll();
  Memory().Free(allocation);
  return cudaSuccess;
}

// CUDA does not say that it waits, so it does not.
cudaError_t cudaFreeHost(void* address) {
  if (StreamQueues::InHostFunction()) return Result(cudaErrorNotPermitted);
  if (address == nullptr) return cudaSuccess;
  Allocation* const allocation = FindBegin(address, MemoryKind::kPinned);
  if (allocation == nullptr) return Result(cudaErrorInvalidValue);
  Memory().Free(allocation);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t handle) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return Result(error);
  if (address == nullptr) return Result(cudaErrorInvalidValue);
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  Allocation* const allocation = Memory().Allocate(bytes, MemoryKind::kDevice, false);
  if (allocation == nullptr) return Result(cudaErrorMemoryAllocation);
  *address = allocation->address;
  Queues().Enqueue(stream, [allocation](CUstream_st*) { Memory().MakeLive(allocation); });
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t handle) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return Result(error);
  if (address == nullptr) return cudaSuccess;
  Allocation* const allocation = FindBegin(address, MemoryKind::kDevice);
  if (allocation == nullptr) return Result(cudaErrorInvalidValue);
  allocation->free_enqueued = true;
  Queues().Enqueue(stream, [allocation](CUstream_st*) { Memory().Free(allocation); });
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void** device_address, void* host_address, unsigned flags) {
  if (device_address == nullptr || flags != 0) return Result(cudaErrorInvalidValue);
  *device_address = nullptr;
  if (!Memory().Owns(host_address) || SideOf(host_address, 1) != Side::kPinned)
    return Result(cudaErrorInvalidValue);
  *device_address = host_address;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (free_bytes == nullptr || total_bytes == nullptr) return Result(cudaErrorInvalidValue);
  *total_bytes = Memory().limit();
  *free_bytes = *total_bytes - std::min(*total_bytes, Memory().device_bytes_in_use());
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  if (attributes == nullptr) return Result(cudaErrorInvalidValue);
  const Side side = address == nullptr ? Side::kPageable : SideOf(address, 1);
  void* const pointer = const_cast<void*>(address);
  *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, nullptr};
  if (side == Side::kDevice) *attributes = {cudaMemoryTypeDevice, 0, pointer, nullptr};
  if (side == Side::kPinned) *attributes = {cudaMemoryTypeHost, 0, pointer, pointer};
  if (side == Side::kPageable) attributes->hostPointer = pointer;
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return Result(Copy({to, from, bytes, kind, false}, nullptr));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return Result(Copy({to, from, bytes, kind, true}, stream));
}
cudaError_t cudaMemset(void* address, int byte, size_t bytes) {
  return Result(Set(address, byte, bytes, nullptr, false));
}
cudaError_t cudaMemsetAsync(void* address, int byte, size_t bytes, cudaStream_t stream) {
  return Result(Set(address, byte, bytes, stream, true));
}

// ---- Streams and events. ----

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (stream == nullptr || flags > cudaStreamNonBlocking) return Result(cudaErrorInvalidValue);
  *stream = Queues().Create(flags != cudaStreamNonBlocking);
  return cudaSuccess;
}
// Its work goes on.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  CUstream_st* const stream = Queues().Find(handle);
  if (stream == nullptr || handle == nullptr || handle == cudaStreamLegacy) {
    return Result(cudaErrorInvalidResourceHandle);
  }
  Queues().Destroy(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return Result(error);
  Queues().WaitFor(Queues().Last(stream));
  return cudaSuccess;
}
// Work that is not done is no error that cudaGetLastError would remember.
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
  if (event == nullptr || (flags & ~(cudaEventBlockingSync | cudaEventDisableTiming)) != 0) {
    return Result(cudaErrorInvalidValue);
  }
  const std::lock_guard<std::mutex> lock(events_mutex);
  Events().push_back(std::make_unique<CUevent_st>((flags & cudaEventDisableTiming) == 0));
  *event = Events().back().get();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
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
  MarkPtr recorded = Queues().Enqueue(stream, [](CUstream_st*) {});
  const std::lock_guard<std::mutex> lock(events_mutex);
  event->recorded = std::move(recorded);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  if (StreamQueues::InHostFunction()) return Result(cudaErrorNotPermitted);
  const CUevent_st* const event = FindEvent(handle);
  if (event == nullptr) return Result(cudaErrorInvalidResourceHandle);
  Queues().WaitFor(RecordedIn(*event));
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  if (StreamQueues::InHostFunction()) return Result(cudaErrorNotPermitted);
  const CUevent_st* const event = FindEvent(handle);
  if (event == nullptr) return Result(cudaErrorInvalidResourceHandle);
  return Queues().IsDone(RecordedIn(*event)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (milliseconds == nullptr) return Result(cudaErrorInvalidValue);
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

// ---- Kernels. ----

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (kernel == nullptr) return Result(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
    return Result(value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue);
  }
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) > kMaxDynamicShared) {
    return Result(cudaErrorInvalidValue);
  }
  const std::lock_guard<std::mutex> lock(kernels_mutex);
  MaxDynamicShared()[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (attributes == nullptr) return Result(cudaErrorInvalidValue);
  if (kernel == nullptr) return Result(cudaErrorInvalidDeviceFunction);
  *attributes = {};
  attributes->maxThreadsPerBlock = kMaxThreadsOfBlock;
  attributes->numRegs = 32;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(MaxDynamicSharedOf(kernel));
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int block_size,
                                                          size_t dynamic_shared_bytes) {
  if (blocks == nullptr || block_size <= 0) return Result(cudaErrorInvalidValue);
  if (kernel == nullptr) return Result(cudaErrorInvalidDeviceFunction);
  *blocks = 0;
  if (block_size > kMaxThreadsOfBlock || dynamic_shared_bytes > MaxDynamicSharedOf(kernel))
    return cudaSuccess;
  const int warps = (block_size + kWarpSize - 1) / kWarpSize;
  constexpr size_t kSharedOfSystem = 1024;  // CUDA keeps as much of each block
  const auto by_shared = static_cast<int>(kSharedOfMultiprocessor / (dynamic_shared_bytes + kSharedOfSystem));
  *blocks =
      std::min({kMaxBlocksOfMultiprocessor, kMaxThreadsOfMultiprocessor / kWarpSize / warps, by_shared});
  return cudaSuccess;
}
