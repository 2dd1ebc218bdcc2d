// What the stand-ins for CUDA's headers need from the engine. Kernels, launchers and tests use CUDA's names
// instead; tests that choose a schedule also use on_host.h.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ENGINE_H_
#define SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "cuda_on_host/types.h"

namespace sok::on_host {

// A line of a kernel, for reports.
struct Place {
  const char* file;
  int line;
};
// A default argument that evaluates to the line of the call.
#define SOK_CALLED_AT ::sok::on_host::Place place = {__builtin_FILE(), __builtin_LINE()}

// ---- In a kernel. During a call, other threads of the grid may run. ----

// The collective operations of a warp's lanes.
enum class Collective { kSync, kShuffle, kBallot, kMatchAny };

// Each lane of `mask` passes a value and gets its result: for a shuffle, the value of lane `source` of the
// warp.
uint64_t WarpCollective(Collective kind, uint32_t mask, uint64_t value, int source, Place place);

void BlockBarrier(Place place);  // __syncthreads

// A kernel that may start early has to call it in each thread before it touches the device's memory: until
// then kernels before it may run.
void AwaitPreviousGrids();

// Called before an atomic operation on `bytes` bytes: reports an address that is invalid for an atomic.
// `block_scope`: the operation is atomic for the threads of one block only.
void BeforeAtomic(const void* address, size_t bytes, bool block_scope, Place place);

// A place where another thread may run next.
void SwitchPoint();

// The block's dynamic shared memory, of the size that the launch requested.
void* DynamicSharedMemory();

// A number that differs from schedule to schedule, for results that CUDA leaves undefined.
uint64_t AnyNumber();

// The index of the calling thread in its warp.
int Lane();

// Ends the process with a message, the position in the kernel and the schedule.
[[noreturn]] void Report(Place place, const char* format, ...) __attribute__((format(printf, 2, 3)));

// ---- On the host. ----

// A kernel with its arguments, which the device keeps until it has run.
struct KernelCall {
  const void* kernel;
  void (*run)(const void* kernel, const void* arguments);
  std::shared_ptr<const void> arguments;
  size_t argument_bytes;
};

// ---- Bits of values of at most 64 bits. ----

template <typename T>
uint64_t ToBits(const T& value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <typename T>
T FromBits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ENGINE_H_
