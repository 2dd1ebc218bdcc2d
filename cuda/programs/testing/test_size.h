#ifndef SOK_CUDA_PROGRAMS_TESTING_TEST_SIZE_H_
#define SOK_CUDA_PROGRAMS_TESTING_TEST_SIZE_H_

#include <cstdint>

namespace sok {

// How much the tests of this folder do: kSmall, unless engine_test's main function sets another size.
enum class TestSize {
  kSmall,   // some hundred ids, for kernels that run on the host
  kNormal,  // about a second per test on a device
  kLarge,   // tables of as much memory as the device has free
};

inline TestSize size_of_tests = TestSize::kSmall;

// The device memory that was free when the program began: pools keep the memory that tests free, so it does
// not count as free later. 1 GiB unless the main function sets it.
inline int64_t free_bytes_of_tests = int64_t{1} << 30;

template <typename T>
T BySize(T small, T normal, T large) {
  return size_of_tests == TestSize::kSmall ? small : size_of_tests == TestSize::kNormal ? normal : large;
}

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_TESTING_TEST_SIZE_H_
