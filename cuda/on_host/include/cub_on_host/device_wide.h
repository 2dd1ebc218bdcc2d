// How the stand-ins for CUB's device-wide algorithms run: as a kernel of one thread, in the stream and as
// late as other kernels, with the same memory checks. They keep CUB's contract, but not its speed.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUB_ON_HOST_DEVICE_WIDE_H_
#define SOK_CUDA_ON_HOST_INCLUDE_CUB_ON_HOST_DEVICE_WIDE_H_

#include "cuda_runtime.h"

namespace cub::on_host_internal {

template <typename Algorithm>
__global__ void RunAlgorithm(Algorithm algorithm) {
  algorithm();
}

// CUB's two calls: without memory it returns how much it needs, with memory it works. It overwrites all of
// that memory, because CUB leaves its contents unspecified.
template <typename Algorithm>
cudaError_t Run(void* memory, size_t& bytes, size_t needed, cudaStream_t stream, const Algorithm& algorithm) {
  constexpr size_t kLeast = 256;
  const size_t all = needed + kLeast;
  if (memory == nullptr) {
    bytes = all;
    return cudaSuccess;
  }
  if (bytes < all) return cudaErrorInvalidValue;
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = 1;
  config.stream = stream;
  auto* const begin = static_cast<unsigned char*>(memory);
  const auto with_memory = [=] {
    for (size_t i = 0; i < kLeast; ++i) begin[needed + i] = 0xa5;
    algorithm();
  };
  return cudaLaunchKernelEx(&config, RunAlgorithm<decltype(with_memory)>, with_memory);
}

template <typename Iterator>
using ValueOf = std::decay_t<decltype(*std::declval<Iterator>())>;

// a + b; integers wrap around.
struct Plus {
  template <typename T>
  T operator()(const T& a, const T& b) const {
    if constexpr (std::is_integral_v<T>) {
      using Word = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Word>(a) + static_cast<Word>(b));
    } else {
      return static_cast<T>(a + b);
    }
  }
};

// Whether two arrays share bytes.
inline bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

}  // namespace cub::on_host_internal

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUB_ON_HOST_DEVICE_WIDE_H_
