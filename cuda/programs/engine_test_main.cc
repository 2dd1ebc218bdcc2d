// engine_test: the engine's tests and its kernels' in one program that needs only a driver.
//
// Without a device all tests are skipped. The last line is `N passed, N failed`.
#include <cstdio>
#include <string>

#include "cuda/programs/device_info.h"
#include "cuda/programs/testing/test_size.h"
#include "gtest/gtest.h"

namespace {

constexpr char kUsage[] =
    "usage: %s [--small | --large] [--need_device] [GoogleTest's flags]\n"
    "  --small        as on the host: some hundred ids in each test\n"
    "  --large        also tables of as much memory as the device has free\n"
    "  --need_device  fail without a device\n"
    "  --gtest_filter=PATTERN, --gtest_brief=1 and others: see --help\n";

struct Flags {
  sok::TestSize size = sok::TestSize::kNormal;
  bool need_device = false;
};

// Returns whether all arguments are known.
bool Parse(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--small") {
      flags->size = sok::TestSize::kSmall;
    } else if (argument == "--large") {
      flags->size = sok::TestSize::kLarge;
    } else if (argument == "--need_device") {
      flags->need_device = true;
    } else {
      return false;
    }
  }
  return true;
}

// Tests do not check for a device themselves.
class SkipAllTests final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { GTEST_SKIP() << "no CUDA device"; }
};

// Prints the closing lines; returns the exit status.
int Report(int status) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  if (all.skipped_test_count() > 0) std::printf("%d skipped\n", all.skipped_test_count());
  std::printf("%d passed, %d failed\n", all.successful_test_count(), all.failed_test_count());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  Flags flags;
  if (!Parse(argc, argv, &flags)) {
    std::fprintf(stderr, kUsage, argv[0]);
    return 2;
  }
  const sok::StatusOr<sok::DeviceInfo> device = sok::CurrentDevice();
  if (device.ok()) {
    std::printf("%s\n", device.value().ToString().c_str());
    sok::free_bytes_of_tests = device.value().free_bytes;
  } else {
    std::printf("%s\n", device.status().message().c_str());
    if (flags.need_device) return 1;
    testing::UnitTest::GetInstance()->listeners().Append(new SkipAllTests);
  }
  sok::size_of_tests = flags.size;
  return Report(RUN_ALL_TESTS());
}
