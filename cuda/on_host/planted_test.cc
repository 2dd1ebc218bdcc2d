// Each planted mistake is noticed by the builds that should notice it, and by no others. No other test would
// fail if a change of the engine hid mistakes from ThreadSanitizer.
#include "cuda/on_host/testing/planted.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cuda/on_host/on_host.h"
#include "gtest/gtest.h"

// A race ends the process, whatever the environment says.
extern "C" const char* __tsan_default_options() { return "halt_on_error=1"; }

namespace sok::on_host {
namespace {

constexpr int kSeeds = 40;

// Makes the mistake in schedules of several seeds, until it is noticed.
void TryMistake(const Mistake& mistake, int seeds) {
  for (int seed = 1; seed <= seeds; ++seed) {
    Schedule schedule = ScheduleOfSeed(static_cast<uint64_t>(seed));
    schedule.max_steps = 100'000;
    SetSchedule(schedule);
    if (mistake.make()) continue;
    std::fprintf(stderr, "wrong results with %s\n", ToString(schedule).c_str());
    std::_Exit(1);
  }
  std::_Exit(0);
}

Noticed Expected(const Mistake& mistake) {
  if (std::strcmp(Build(), "asan") == 0) return mistake.asan;
  return std::strcmp(Build(), "tsan") == 0 ? mistake.tsan : mistake.plain;
}

class PlantedTest : public ::testing::TestWithParam<Mistake> {
 protected:
  // In a new process: this one has threads.
  void SetUp() override { ::testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};

TEST_P(PlantedTest, IsNoticed) {
  const Mistake& mistake = GetParam();
  const Noticed expected = Expected(mistake);
  const int seeds = expected == Noticed::kAlways ? 1 : kSeeds;
  if (expected == Noticed::kNever) {
    EXPECT_EXIT(TryMistake(mistake, seeds), ::testing::ExitedWithCode(0), "");
    return;
  }
  const bool is_plain = std::strcmp(Build(), "plain") == 0;
  EXPECT_EXIT(
      TryMistake(mistake, seeds), [](int status) { return status != 0; },
      is_plain ? mistake.report
               : "wrong results|on_host: |ERROR: AddressSanitizer|runtime error|ThreadSanitizer");
}

INSTANTIATE_TEST_SUITE_P(Mistakes, PlantedTest, ::testing::ValuesIn(PlantedMistakes()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sok::on_host
