// Test support: tests whose kernels are lambdas.
#ifndef SOK_CUDA_DEVICE_TEST_H_
#define SOK_CUDA_DEVICE_TEST_H_

#include "cuda/device_array.h"
#include "gtest/gtest.h"

// TEST(SUITE, NAME) whose body may define __device__ lambdas: nvcc does not allow them in GoogleTest's
// private functions. Skipped if there is no device.
#define SOK_DEVICE_TEST(SUITE, NAME)                         \
  void SUITE##NAME##Body();                                  \
  TEST(SUITE, NAME) {                                        \
    if (!sok::HasDevice()) GTEST_SKIP() << "no CUDA device"; \
    SUITE##NAME##Body();                                     \
  }                                                          \
  void SUITE##NAME##Body()

#endif  // SOK_CUDA_DEVICE_TEST_H_
