#ifndef SOK_TESTS_FAKE_GPU_HOST_KERNELS_H_
#define SOK_TESTS_FAKE_GPU_HOST_KERNELS_H_

// Adds kernels on GPUs to some of TensorFlow's ops, once. Returns true.
bool AddHostKernels();

#endif  // SOK_TESTS_FAKE_GPU_HOST_KERNELS_H_
