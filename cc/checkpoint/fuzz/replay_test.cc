// Runs the fuzz target on some thousands of random inputs, in every build; it aborts on an error. To replay
// given inputs, pass their files to the program of tools/fuzz.sh.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cc/checkpoint/fuzz/read_checkpoint.h"

namespace sok {
namespace {

TEST(ReadCheckpointReplay, GoodCheckpointsAreRead) {
  for (int image = 0; image < 5; ++image) {
    for (int reader = 0; reader < 256; ++reader) {
      const uint8_t input[] = {static_cast<uint8_t>(image), static_cast<uint8_t>(reader)};
      ReadFuzzedCheckpoint(input, sizeof(input));
    }
  }
}

TEST(ReadCheckpointReplay, ChangedCheckpointsDoNoHarm) {
  std::mt19937_64 random(20261121);
  for (int i = 0; i < 4000; ++i) {
    std::vector<uint8_t> input(2 + random() % 60);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    ReadFuzzedCheckpoint(input.data(), input.size());
  }
}

}  // namespace
}  // namespace sok
