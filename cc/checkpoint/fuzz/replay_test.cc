// What the fuzzer runs, on inputs made by chance: every build tries some thousands. With file names as
// arguments, it replays those instead.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "cc/checkpoint/fuzz/read_checkpoint.h"

namespace sok {
namespace {

std::vector<std::string>& Replayed() {
  static std::vector<std::string> paths;
  return paths;
}

TEST(ReadCheckpointReplay, GoodCheckpointsAreRead) {
  for (int image = 0; image < 5; ++image) {
    for (int reader = 0; reader < 256; ++reader) {
      const uint8_t input[] = {static_cast<uint8_t>(image), static_cast<uint8_t>(reader)};
      ReadFuzzedCheckpoint(input, sizeof(input));
    }
  }
}

TEST(ReadCheckpointReplay, ChangedOnesNeverDoHarm) {
  std::mt19937_64 random(20261121);
  for (int i = 0; i < 4000; ++i) {
    std::vector<uint8_t> input(2 + random() % 60);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    ReadFuzzedCheckpoint(input.data(), input.size());
  }
}

TEST(ReadCheckpointReplay, FilesOfTheCommandLine) {
  for (const std::string& path : Replayed()) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    ReadFuzzedCheckpoint(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
}

}  // namespace
}  // namespace sok

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  sok::Replayed().assign(argv + 1, argv + argc);
  return RUN_ALL_TESTS();
}
