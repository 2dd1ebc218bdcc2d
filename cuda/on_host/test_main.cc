// The main function of tests on the host. `--seeds=N` runs all tests once for each seed from 1 to N; without
// it they run once, with the schedule of the environment.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda/on_host/on_host.h"
#include "gtest/gtest.h"

namespace {

// Sets the schedule of each round.
class SeedOfRound : public ::testing::EmptyTestEventListener {
 public:
  void OnTestIterationStart(const ::testing::UnitTest&, int round) override {
    schedule_ = sok::on_host::ScheduleOfSeed(static_cast<uint64_t>(round) + 1);
    sok::on_host::SetSchedule(schedule_);
  }
  // Tests may choose schedules of their own.
  void OnTestStart(const ::testing::TestInfo&) override { sok::on_host::SetSchedule(schedule_); }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) std::printf("The schedule: %s\n", sok::on_host::ToString(schedule_).c_str());
  }

 private:
  sok::on_host::Schedule schedule_;
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  constexpr char kSeeds[] = "--seeds=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], kSeeds, sizeof(kSeeds) - 1) != 0) {
      std::fprintf(stderr, "%s is not understood\n", argv[i]);
      return 2;
    }
    ::testing::GTEST_FLAG(repeat) = std::atoi(argv[i] + sizeof(kSeeds) - 1);
    ::testing::UnitTest::GetInstance()->listeners().Append(new SeedOfRound());
  }
  return RUN_ALL_TESTS();
}
