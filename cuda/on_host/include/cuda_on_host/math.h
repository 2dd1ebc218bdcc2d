// CUDA's arithmetic that C++ lacks: minima of mixed types, bit operations, bit casts.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_MATH_H_
#define SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_MATH_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cuda_on_host/engine.h"

// Like CUDA's, for any two number types. If one float is NaN, the other is returned.
template <typename A, typename B>
std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmin(static_cast<T>(a), static_cast<T>(b));
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <typename A, typename B>
std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmax(static_cast<T>(a), static_cast<T>(b));
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
// The position of the lowest set bit, counted from 1; 0 if there is none.
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }

inline unsigned __float_as_uint(float x) { return sok::on_host::FromBits<unsigned>(sok::on_host::ToBits(x)); }

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_MATH_H_
