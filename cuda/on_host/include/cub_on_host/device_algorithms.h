// DeviceScan, DeviceReduce, DeviceSelect and DeviceRunLengthEncode.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUB_ON_HOST_DEVICE_ALGORITHMS_H_
#define SOK_CUDA_ON_HOST_INCLUDE_CUB_ON_HOST_DEVICE_ALGORITHMS_H_

#include <limits>

#include "cub_on_host/device_wide.h"

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
