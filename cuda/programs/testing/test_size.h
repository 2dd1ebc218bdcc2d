#ifndef SOK_CUDA_PROGRAMS_TESTING_TEST_SIZE_H_
#define SOK_CUDA_PROGRAMS_TESTING_TEST_SIZE_H_

#include <cstdint>

namespace sok {

// How much the tests of this folder do. It is kSmall, which a machine without a device can take, until the
// main function of engine_test says otherwise.
enum class TestSize {
  kSmall,   // some hundred ids, for kernels that run on the host
  kNormal,  // about a second of a device for each test
  kLarge,   // tables of as much memory as the device has free
};

TestSize SizeOfTests();
void SetSizeOfTests(TestSize size);

// The device memory that was free when the program began: pools keep what tests have freed, so that it does
// not count as free later. 1 GiB until the main function says otherwise.
int64_t FreeBytesOfTests();
void SetFreeBytesOfTests(int64_t bytes);

template <typename T>
T BySize(T small, T normal, T large) {
  return SizeOfTests() == TestSize::kSmall ? small : SizeOfTests() == TestSize::kNormal ? normal : large;
}

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_TESTING_TEST_SIZE_H_
