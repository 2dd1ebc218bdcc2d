// Runs the fuzz target on some thousands of random inputs, in every build; it aborts on an error. To replay
// given inputs, pass their files to the program of tools/fuzz.sh.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

// The fuzz target, in read_checkpoint.cc.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace sok {
namespace {

TEST(ReadCheckpointReplay, GoodCheckpointsAreRead) {
  for (int image = 0; image < 5; ++image) {
    for (int reader = 0; reader < 256; ++reader) {
      const uint8_t input[] = {static_cast<uint8_t>(image), static_cast<uint8_t>(reader)};
      LLVMFuzzerTestOneInput(input, sizeof(input));
    }
  }
}

TEST(ReadCheckpointReplay, ChangedCheckpointsDoNoHarm) {
  std::mt19937_64 random(20261121);
  for (int i = 0; i < 4000; ++i) {
    std::vector<uint8_t> input(2 + random() % 60);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

}  // namespace
}  // namespace sok
