// CUDA's arithmetic that C++ lacks: bit operations, bit casts, operations with an explicit rounding mode.
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
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
// The position of the lowest set bit, counted from 1; 0 if there is none.
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1) << (31 - bit);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}

inline unsigned __float_as_uint(float x) { return sok::on_host::FromBits<unsigned>(sok::on_host::ToBits(x)); }
inline int __float_as_int(float x) { return sok::on_host::FromBits<int>(sok::on_host::ToBits(x)); }
inline float __uint_as_float(unsigned x) { return sok::on_host::FromBits<float>(x); }
inline float __int_as_float(int x) { return sok::on_host::FromBits<float>(sok::on_host::ToBits(x)); }
inline long long __double_as_longlong(double x) {
  return sok::on_host::FromBits<long long>(sok::on_host::ToBits(x));
}
inline double __longlong_as_double(long long x) {
  return sok::on_host::FromBits<double>(sok::on_host::ToBits(x));
}

// Rounded to nearest even, never fused with another operation.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
// Not the same bits as on a device: CUDA only guarantees 2 units in the last place.
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }

inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(std::floor(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

// Loads and stores that hint at caches.
template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
T __ldcg(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, T value) {
  *address = value;
}
template <typename T>
void __stcg(T* address, T value) {
  *address = value;
}

inline long long clock64() { return sok::on_host::Clock(); }
inline void __nanosleep(unsigned) { sok::on_host::SwitchPoint(); }
[[noreturn]] inline void __trap(SOK_CALLED_AT) { sok::on_host::Report(place, "a thread called __trap"); }

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_MATH_H_
