// A few adjacent floats of a row, which a lane reads and writes in one access. Only .cu files include this
// header.
#ifndef SOK_CUDA_BASE_FLOATS_H_
#define SOK_CUDA_BASE_FLOATS_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace sok {

// kWidth is 1, or 4 for 16 aligned bytes.
template <int kWidth>
struct Floats {
  static_assert(kWidth == 1 || kWidth == 4);
  float v[kWidth];
};

template <int kWidth>
__device__ __forceinline__ Floats<kWidth> LoadFloats(const float* from) {
  if constexpr (kWidth == 4) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    return {{four.x, four.y, four.z, four.w}};
  } else {
    return {{*from}};
  }
}

template <int kWidth>
__device__ __forceinline__ void StoreFloats(const Floats<kWidth>& floats, float* to) {
  if constexpr (kWidth == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(floats.v[0], floats.v[1], floats.v[2], floats.v[3]);
  } else {
    *to = floats.v[0];
  }
}

template <int kWidth>
__device__ __forceinline__ Floats<kWidth> EqualFloats(float value) {
  Floats<kWidth> floats;
  for (int k = 0; k < kWidth; ++k) floats.v[k] = value;
  return floats;
}

// -0, the initial value of a sum: adding it keeps the bits of the first term, whereas +0 would turn a first
// term of -0 into +0.
template <int kWidth>
__device__ __forceinline__ Floats<kWidth> EmptySum() {
  return EqualFloats<kWidth>(-0.0f);
}

template <int kWidth>
__device__ __forceinline__ void AddTo(const Floats<kWidth>& term, Floats<kWidth>* sum) {
  for (int k = 0; k < kWidth; ++k) sum->v[k] += term.v[k];
}

template <int kWidth>
__device__ __forceinline__ void AddScaledTo(float scale, const Floats<kWidth>& term, Floats<kWidth>* sum) {
  for (int k = 0; k < kWidth; ++k) sum->v[k] += scale * term.v[k];
}

template <int kWidth>
__device__ __forceinline__ void MultiplyBy(float factor, Floats<kWidth>* floats) {
  for (int k = 0; k < kWidth; ++k) floats->v[k] *= factor;
}

template <int kWidth>
__device__ __forceinline__ void DivideBy(float divisor, Floats<kWidth>* floats) {
  for (int k = 0; k < kWidth; ++k) floats->v[k] /= divisor;
}

// Whether rows of `dim` floats, `stride` apart from `first`, can be accessed four floats at a time.
inline bool FitsFours(const void* first, int64_t stride, int64_t dim) {
  return dim % 4 == 0 && stride % 4 == 0 && reinterpret_cast<uintptr_t>(first) % 16 == 0;
}

// Only .cu files include this header.

// Prefetches n floats, which begin at a multiple of 16 bytes, into the device's cache, without waiting and
// without using registers. Reads up to 3 floats behind them, so their memory must end at a multiple of 16
// bytes. Does nothing on the host.
__device__ __forceinline__ void PrefetchFloats(const float* floats, int64_t n) {
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
  const auto bytes = static_cast<uint32_t>((n + 3) / 4 * 16);
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(floats)),
               "r"(bytes));
#else
  constexpr int kFloatsOfSector = 8;
  for (int64_t i = 0; i < n; i += kFloatsOfSector) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(floats + i));
  }
#endif
#else
  static_cast<void>(floats);
  static_cast<void>(n);
#endif
}

}  // namespace sok

#endif  // SOK_CUDA_BASE_FLOATS_H_
