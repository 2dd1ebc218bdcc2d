#include "cuda/programs/testing/test_size.h"

namespace sok {
namespace {

TestSize size_of_tests = TestSize::kSmall;
int64_t free_bytes = int64_t{1} << 30;

}  // namespace

TestSize SizeOfTests() { return size_of_tests; }
void SetSizeOfTests(TestSize size) { size_of_tests = size; }
int64_t FreeBytesOfTests() { return free_bytes; }
void SetFreeBytesOfTests(int64_t bytes) { free_bytes = bytes; }

}  // namespace sok
