// Fetches what the host has to know from the device: the waits of lookups and steps.
#ifndef SOK_CUDA_BASE_ROUND_TRIP_H_
#define SOK_CUDA_BASE_ROUND_TRIP_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cc/base/status.h"
#include "cuda/base/event.h"
#include "cuda/base/pinned.h"

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
    StatusOr<const void*> memory = FetchBytes(stream, device, n * static_cast<int64_t>(sizeof(T)));
    if (!memory.ok()) return memory.status();
    return static_cast<const T*>(memory.value());
  }

  // The number of calls of Fetch in this process: tests count how often the host waits.
  static int64_t count();

 private:
  StatusOr<const void*> FetchBytes(cudaStream_t stream, const void* device, int64_t bytes);

  PinnedBuffer<char> memory_;
  Event copied_;
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_ROUND_TRIP_H_
