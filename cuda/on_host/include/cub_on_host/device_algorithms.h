// DeviceScan, DeviceReduce, DeviceSelect and DeviceRunLengthEncode.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUB_ON_HOST_DEVICE_ALGORITHMS_H_
#define SOK_CUDA_ON_HOST_INCLUDE_CUB_ON_HOST_DEVICE_ALGORITHMS_H_

#include <limits>

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

// Whether two arrays share bytes.
inline bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

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
  // out[i] = in[0] + ... + in[i].
  template <typename In, typename Out, typename N>
  static cudaError_t InclusiveSum(void* memory, size_t& bytes, In in, Out out, N n,
                                  cudaStream_t stream = nullptr) {
    return on_host_internal::Run(memory, bytes, 0, stream, [=] {
      on_host_internal::ValueOf<In> sum = {};
      for (N i = 0; i < n; ++i) {
        sum = on_host_internal::Plus()(sum, on_host_internal::ValueOf<In>(in[i]));
        out[i] = sum;
      }
    });
  }
};

// Results for no elements: 0 for Sum, the lowest number for Max, the highest for Min.
struct DeviceReduce {
  template <typename In, typename Out, typename N>
  static cudaError_t Sum(void* memory, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    using T = on_host_internal::ValueOf<In>;
    return Combine(memory, bytes, in, out, n, T{}, stream, on_host_internal::Plus());
  }
  template <typename In, typename Out, typename N>
  static cudaError_t Max(void* memory, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    using T = on_host_internal::ValueOf<In>;
    return Combine(memory, bytes, in, out, n, std::numeric_limits<T>::lowest(), stream,
                   [](T a, T b) { return a < b ? b : a; });
  }
  template <typename In, typename Out, typename N>
  static cudaError_t Min(void* memory, size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    using T = on_host_internal::ValueOf<In>;
    return Combine(memory, bytes, in, out, n, std::numeric_limits<T>::max(), stream,
                   [](T a, T b) { return b < a ? b : a; });
  }
  // Any associative operation. The order is unspecified.
  template <typename In, typename Out, typename N, typename Op, typename T>
  static cudaError_t Reduce(void* memory, size_t& bytes, In in, Out out, N n, Op op, T init,
                            cudaStream_t stream = nullptr) {
    return Combine(memory, bytes, in, out, n, init, stream, op);
  }

 private:
  template <typename In, typename Out, typename N, typename T, typename Op>
  static cudaError_t Combine(void* memory, size_t& bytes, In in, Out out, N n, T init, cudaStream_t stream,
                             Op op) {
    return on_host_internal::Run(memory, bytes, 0, stream, [=] {
      T all = init;
      for (N i = 0; i < n; ++i) all = op(all, in[i]);
      *out = all;
    });
  }
};

// The chosen elements, in their order, and their number.
struct DeviceSelect {
  template <typename In, typename Flags, typename Out, typename Count, typename N>
  static cudaError_t Flagged(void* memory, size_t& bytes, In in, Flags flags, Out out, Count count, N n,
                             cudaStream_t stream = nullptr) {
    return Select(memory, bytes, in, out, count, n, stream, [=](N i) { return static_cast<bool>(flags[i]); });
  }
  template <typename In, typename Out, typename Count, typename N, typename Predicate>
  static cudaError_t If(void* memory, size_t& bytes, In in, Out out, Count count, N n, Predicate predicate,
                        cudaStream_t stream = nullptr) {
    return Select(memory, bytes, in, out, count, n, stream,
                  [=](N i) { return static_cast<bool>(predicate(in[i])); });
  }
  // The first of each run of equal elements.
  template <typename In, typename Out, typename Count, typename N>
  static cudaError_t Unique(void* memory, size_t& bytes, In in, Out out, Count count, N n,
                            cudaStream_t stream = nullptr) {
    return Select(memory, bytes, in, out, count, n, stream,
                  [=](N i) { return i == 0 || !(in[i] == in[i - 1]); });
  }

 private:
  template <typename In, typename Out, typename Count, typename N, typename Chosen>
  static cudaError_t Select(void* memory, size_t& bytes, In in, Out out, Count count, N n,
                            cudaStream_t stream, Chosen chosen) {
    return on_host_internal::Run(memory, bytes, 0, stream, [=] {
      N found = 0;
      for (N i = 0; i < n; ++i) {
        if (chosen(i)) out[found++] = in[i];
      }
      *count = static_cast<on_host_internal::ValueOf<Count>>(found);
    });
  }
};

// Runs of equal elements: the element, the length of the run, and the number of runs.
struct DeviceRunLengthEncode {
  template <typename In, typename Unique, typename Lengths, typename NumRuns, typename N>
  static cudaError_t Encode(void* memory, size_t& bytes, In in, Unique unique, Lengths lengths,
                            NumRuns num_runs, N n, cudaStream_t stream = nullptr) {
    return on_host_internal::Run(memory, bytes, 0, stream, [=] {
      using Length = on_host_internal::ValueOf<Lengths>;
      N runs = 0;
      for (N begin = 0; begin < n;) {
        N end = begin + 1;
        while (end < n && in[end] == in[begin]) ++end;
        unique[runs] = in[begin];
        lengths[runs++] = static_cast<Length>(end - begin);
        begin = end;
      }
      *num_runs = static_cast<on_host_internal::ValueOf<NumRuns>>(runs);
    });
  }
};

}  // namespace cub

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUB_ON_HOST_DEVICE_ALGORITHMS_H_
