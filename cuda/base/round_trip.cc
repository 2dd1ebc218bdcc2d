#include "cuda/base/round_trip.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "cuda/base/cuda_status.h"

namespace sok {
namespace {

// Nearly all results fit, so that the memory is pinned once.
constexpr int64_t kMinBytes = 4096;

std::atomic<int64_t> num_fetches{0};

}  // namespace

int64_t RoundTrip::count() { return num_fetches; }

StatusOr<const void*> RoundTrip::FetchBytes(cudaStream_t stream, const void* device, int64_t bytes) {
  ++num_fetches;
  if (memory_.size() < bytes) {
    StatusOr<PinnedBuffer<char>> memory =
        PinnedBuffer<char>::Allocate(std::max({kMinBytes, bytes, 2 * memory_.size()}));
    if (!memory.ok()) return memory.status();
    memory_ = std::move(memory.value());
  }
  if (bytes > 0) {
    SOK_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(memory_.data(), device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream),
        "cannot copy ", bytes, " bytes from the device");
  }
  SOK_RETURN_IF_ERROR(copied_.Record(stream));
  SOK_RETURN_IF_ERROR(copied_.Wait());
  return static_cast<const void*>(memory_.data());
}

}  // namespace sok
