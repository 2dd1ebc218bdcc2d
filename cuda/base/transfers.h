// Fetches what the host has to know from the device: the waits of lookups and steps.
#ifndef SOK_CUDA_BASE_TRANSFERS_H_
#define SOK_CUDA_BASE_TRANSFERS_H_

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/base/allocators.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/event.h"

namespace sok {

// Copies a small array from the device to the host, and waits for it. Callers keep the object from step to
// step, with its pinned memory. One call at a time.
class RoundTrip {
 public:
  // Copies device[n] after the work that is in the stream, and waits for the copy. The result stays valid
  // until the next call.
  template <typename T>
  StatusOr<const T*> Fetch(cudaStream_t stream, const T* device, int64_t n) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 256);
    SOK_ASSIGN_OR_RETURN(const void* memory, FetchBytes(stream, device, n * static_cast<int64_t>(sizeof(T))));
    return static_cast<const T*>(memory);
  }

  // The number of calls of Fetch in this process: tests count how often the host waits.
  static int64_t count();

 private:
  StatusOr<const void*> FetchBytes(cudaStream_t stream, const void* device, int64_t bytes);

  PinnedBuffer<char> memory_;
  Event copied_;
};

// Small arrays from the host to the device, without a wait.

// Sends arrays to the device in one copy. They are staged in pinned memory, which is reused only after the
// copy that reads it has run. Callers keep the object from step to step. One call at a time; the destructor
// waits for its copies.
//
//   const int64_t* device_begin;
//   const KeyIndexView* device_views;
//   upload.Add(Span<const int64_t>(begin), &device_begin);
//   upload.Add(Span<const KeyIndexView>(views), &device_views);
//   StatusOr<DeviceBuffer<char>> arrays = upload.Send(stream, allocator);  // holds both
class StagedUpload {
 public:
  StagedUpload() = default;
  StagedUpload(const StagedUpload&) = delete;
  StagedUpload& operator=(const StagedUpload&) = delete;
  ~StagedUpload();

  // Copies the values; Send sets *device to their address on the device, aligned to 16 bytes.
  template <typename T>
  void Add(Span<const T> values, const T** device) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    AddBytes(values.data(), values.size() * static_cast<int64_t>(sizeof(T)),
             reinterpret_cast<const void**>(device));
  }

  // Sends all that was added since the last Send, for later work on the stream; the result owns the device
  // memory. ResourceExhausted if memory runs out. Afterwards nothing is added, even if Send failed.
  StatusOr<DeviceBuffer<char>> Send(cudaStream_t stream, DeviceAllocator* allocator);

  // Sends one array to memory that the caller allocated.
  Status Copy(cudaStream_t stream, const void* values, int64_t bytes, void* device);

  // The host has waited for work on the stream that came after all copies on it: none of them is in flight.
  void HasWaited(cudaStream_t stream);

 private:
  static constexpr int64_t kAlignment = 16;

  // An array in bytes_, and where its address goes.
  struct Added {
    int64_t at;
    const void** device;
  };
  struct Stage {
    PinnedBuffer<char> memory;
    Event copied;
    cudaStream_t stream = nullptr;
    bool is_free = false;  // as the host has waited; otherwise `copied` says so, which takes a call
  };

  void AddBytes(const void* values, int64_t bytes, const void** device);
  // A stage that no copy in flight reads.
  StatusOr<Stage*> FreeStage(int64_t bytes);

  std::vector<char> bytes_;  // as long as the longest upload
  int64_t num_bytes_ = 0;
  std::vector<Added> added_;
  std::vector<Stage> stages_;
};

// What the later calls of a step over ranks need to exchange small arrays with the device.
struct HostTransfers {
  Mutex mutex;  // held while a call uses upload and round_trip
  StagedUpload upload;
  RoundTrip round_trip;
  // Of these calls' memory, as of the last step.
  std::atomic<int64_t> combine_bytes{0};
  std::atomic<int64_t> reduce_bytes{0};
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_TRANSFERS_H_
