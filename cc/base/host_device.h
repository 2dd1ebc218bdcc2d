// SOK_HOST_DEVICE marks arithmetic that the CPU and the CUDA engine share.
//
// Headers whose functions carry this mark (hashing, random numbers, optimizer arithmetic) are compiled by g++
// and by nvcc, and must give the same bits on both: integer operations, IEEE basic operations and square
// roots only, no library functions whose rounding the standard leaves unspecified.
#ifndef SOK_CC_BASE_HOST_DEVICE_H_
#define SOK_CC_BASE_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define SOK_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SOK_HOST_DEVICE inline
#endif

#endif  // SOK_CC_BASE_HOST_DEVICE_H_
