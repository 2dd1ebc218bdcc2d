// Stands in for CUB's header of this name: all of CUB takes a compiler several times as long.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUB_DEVICE_DEVICE_SCAN_CUH_
#define SOK_CUDA_ON_HOST_INCLUDE_CUB_DEVICE_DEVICE_SCAN_CUH_

#include "cuda_runtime.h"

namespace cub::on_host_internal {

// How the stand-ins for CUB's device-wide algorithms run: as a kernel of one thread, in the stream and as
// late as other kernels, with the same memory checks. They keep CUB's contract, but not its speed.

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

}  // namespace cub::on_host_internal

namespace cub {

// `out` may be `in`.
struct DeviceScan {
  // out[i] = in[0] + ... + in[i - 1].
  template <typename In, typename Out, typename N>
  static cudaError_t ExclusiveSum(void* memory, size_t& bytes, In in, Out out, N n,
                                  cudaStream_t stream = nullptr) {
    return on_host_internal::Run(memory, bytes, 0, stream, [=] {
      on_host_internal::ValueOf<In> sum = {};
      for (N i = 0; i < n; ++i) {
        const on_host_internal::ValueOf<In> next = in[i];
        out[i] = sum;
        sum = on_host_internal::Plus()(sum, next);
      }
    });
  }
};

}  // namespace cub

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUB_DEVICE_DEVICE_SCAN_CUH_
