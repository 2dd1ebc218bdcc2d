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

// Vectors, aligned to their size as CUDA's are, but at most to 16 bytes. On a device, a misaligned access is
// a fault. Kernels are compiled with -fsanitize=alignment, which reports it here.
#define SOK_VECTOR_2(NAME, T)                        \
  struct alignas(2 * sizeof(T)) NAME##2 { T x, y; }; \
  inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }
#define SOK_VECTOR_4(NAME, T)                              \
  struct alignas(4 * sizeof(T)) NAME##4 { T x, y, z, w; }; \
  inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

SOK_VECTOR_2(uint, unsigned)
SOK_VECTOR_4(uint, unsigned)
SOK_VECTOR_4(float, float)
SOK_VECTOR_2(longlong, long long)

#undef SOK_VECTOR_4
#undef SOK_VECTOR_2

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_TYPES_H_
