// The main function of tests on the host. `--seeds=N` runs all tests once for each seed from 1 to N; without
// it they run once, with the schedule of the environment. The schedule restarts for each test, so a failing
// test can be repeated alone: SOK_ON_HOST_SEED=7 bazel-bin/cuda/some_test --gtest_filter=Suite.Name
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cuda/on_host/on_host.h"
#include "gtest/gtest.h"

namespace {

class Schedules : public ::testing::EmptyTestEventListener {
 public:
  explicit Schedules(bool has_seeds) : has_seeds_(has_seeds) {}

  void OnTestIterationStart(const ::testing::UnitTest&, int round) override {
    if (has_seeds_) setenv("SOK_ON_HOST_SEED", std::to_string(round + 1).c_str(), 1);
    schedule_ = sok::on_host::ScheduleOfEnvironment();
  }
  void OnTestStart(const ::testing::TestInfo&) override { sok::on_host::SetSchedule(schedule_); }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) std::printf("The schedule: %s\n", sok::on_host::ToString(schedule_).c_str());
  }

 private:
  const bool has_seeds_;
  sok::on_host::Schedule schedule_;
};

// The number of seeds that the arguments name; 0 for none, -1 for an unknown argument.
int SeedsOf(int argc, char** argv) {
  constexpr char kSeeds[] = "--seeds=";
  int seeds = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], kSeeds, sizeof(kSeeds) - 1) != 0) return -1;
    seeds = std::atoi(argv[i] + sizeof(kSeeds) - 1);
    if (seeds < 1) return -1;
  }
  return seeds;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const int seeds = SeedsOf(argc, argv);
  if (seeds < 0) {
    std::fprintf(stderr, "usage: %s [--seeds=N] [GoogleTest's flags]\n", argv[0]);
    return 2;
  }
  if (seeds > 0) ::testing::GTEST_FLAG(repeat) = seeds;
  ::testing::UnitTest::GetInstance()->listeners().Append(new Schedules(seeds > 0));
  return RUN_ALL_TESTS();
}
