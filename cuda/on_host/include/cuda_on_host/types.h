// What CUDA C++ adds to the language, and CUDA's vector types.
//
// A variable that is __shared__ becomes thread_local: each resident block has a host thread, so blocks that
// run at the same time do not share it. The threads of a block are fibers of that host thread, so they do.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_TYPES_H_
#define SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_TYPES_H_

#include <cstddef>
#include <cstdint>

// Defined where .cu files are compiled for the host. Kernels should not need it.
#define SOK_CUDA_ON_HOST 1
#define CUDART_VERSION 13000

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}  // NOLINT: as CUDA's
  unsigned x, y, z;
};

// NAME1 to NAME4 of a type. CUDA's alignment: the size of 2 and of 4 elements, but at most 16 bytes, and one
// element's for 3. On a device, a misaligned access is a fault. Kernels are compiled with
// -fsanitize=alignment, which reports it here.
#define SOK_VECTOR_1(NAME, T) \
  struct NAME##1 { T x; };    \
  inline NAME##1 make_##NAME##1(T x) { return {x}; }
#define SOK_VECTOR_2(NAME, T)                        \
  struct alignas(2 * sizeof(T)) NAME##2 { T x, y; }; \
  inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }
#define SOK_VECTOR_4(NAME, T)                              \
  struct alignas(4 * sizeof(T)) NAME##4 { T x, y, z, w; }; \
  inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define SOK_VECTOR_3(NAME, T)    \
  struct NAME##3 { T x, y, z; }; \
  inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }
#define SOK_SHORT_VECTORS(NAME, T) \
  SOK_VECTOR_1(NAME, T) SOK_VECTOR_2(NAME, T) SOK_VECTOR_3(NAME, T) SOK_VECTOR_4(NAME, T)
#define SOK_LONG_VECTORS(NAME, T) SOK_VECTOR_1(NAME, T) SOK_VECTOR_2(NAME, T) SOK_VECTOR_3(NAME, T)

SOK_SHORT_VECTORS(char, signed char)
SOK_SHORT_VECTORS(uchar, unsigned char)
SOK_SHORT_VECTORS(short, short)  // NOLINT: CUDA's name
SOK_SHORT_VECTORS(ushort, unsigned short)
SOK_SHORT_VECTORS(int, int)
SOK_VECTOR_1(uint, unsigned)
SOK_VECTOR_2(uint, unsigned)
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
SOK_VECTOR_4(uint, unsigned)
SOK_SHORT_VECTORS(float, float)
SOK_LONG_VECTORS(double, double)
SOK_LONG_VECTORS(long, long)
SOK_LONG_VECTORS(ulong, unsigned long)
SOK_LONG_VECTORS(longlong, long long)
SOK_LONG_VECTORS(ulonglong, unsigned long long)

#undef SOK_LONG_VECTORS
#undef SOK_SHORT_VECTORS
#undef SOK_VECTOR_4
#undef SOK_VECTOR_3
#undef SOK_VECTOR_2
#undef SOK_VECTOR_1

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_TYPES_H_
