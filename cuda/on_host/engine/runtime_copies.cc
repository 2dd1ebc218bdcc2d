// cudaMemcpy, cudaMemset and their asynchronous variants.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/on_host/engine/report.h"
#include "cuda/on_host/engine/runtime.h"

namespace sok::on_host {
namespace {

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

// Called when the work runs: freeing memory while work waits for it is a mistake of the program.
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
    Memory().OpenAt(to);
    Memory().OpenAt(from);
    const AsStream as_stream(stream);
    std::memmove(to, staged == nullptr ? from : staged->data(), bytes);
  };
}

// How a copy synchronizes with the host, by CUDA's "API synchronization behavior".
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
  const auto bytes = static_cast<int64_t>(call.bytes);
  CountTransfer(from == Side::kDevice && to != Side::kDevice ? bytes : 0,
                from != Side::kDevice && to == Side::kDevice ? bytes : 0);
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
    Memory().OpenAt(address);
    const AsStream as_stream(of);
    std::memset(address, byte, bytes);
  });
  CountTransfer(0, 0);
  if (!is_async && side == Side::kPinned) Queues().WaitFor(done);
  return cudaSuccess;
}

}  // namespace
}  // namespace sok::on_host

using namespace sok::on_host;  // NOLINT: the functions below are CUDA's, in the global namespace

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
