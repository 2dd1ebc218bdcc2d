// The main function of tests on the host. Without arguments of its own each test runs once, with the schedule
// of the environment. Each run of a test begins its schedule anew, so one that fails can be repeated alone:
// SOK_ON_HOST_SEED=7 bazel-bin/cuda/some_test --gtest_filter=Suite.Name
//
//   --seeds=N  Each test runs with the schedules of seeds 1 to N.
//   --work=W   Each test runs with these schedules and in order, as long as its runs together take no more
//              than about W steps: see SeedsOfTests.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cuda/on_host/on_host.h"
#include "cuda/on_host/testing/seeds_of_tests.h"
#include "gtest/gtest.h"

namespace sok::on_host {
namespace {

struct Arguments {
  int64_t seeds = 0;  // 0: as the environment says
  int64_t work = SeedsOfTests::kNoLimit;
};

// Gives each run of a test its schedule. Adds it to *seeds, unless that is null.
class Schedules : public ::testing::EmptyTestEventListener {
 public:
  explicit Schedules(SeedsOfTests* seeds) : seeds_(seeds) {}

  void OnTestStart(const ::testing::TestInfo& test) override {
    if (seeds_ != nullptr) setenv("SOK_ON_HOST_SEED", std::to_string(seeds_->Next(NameOf(test))).c_str(), 1);
    schedule_ = ScheduleOfEnvironment();
    SetSchedule(schedule_);
    work_before_ = Work();
  }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) std::printf("The schedule: %s\n", ToString(schedule_).c_str());
  }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (seeds_ != nullptr) seeds_->AddWork(NameOf(test), Work() - work_before_);
  }

 private:
  static std::string NameOf(const ::testing::TestInfo& test) {
    return std::string(test.test_suite_name()) + "." + test.name();
  }
  // Steps of threads, and for each launch as many as take as long. Time would differ from run to run.
  static int64_t Work() {
    constexpr int64_t kStepsPerKernel = 250;
    return Steps() + kStepsPerKernel * EnqueuedWork().kernels;
  }

  SeedsOfTests* const seeds_;
  Schedule schedule_;
  int64_t work_before_ = 0;
};

bool TakeNumber(const char* argument, const char* name, int64_t* number) {
  const size_t length = std::strlen(name);
  if (std::strncmp(argument, name, length) != 0) return false;
  char* end = nullptr;
  *number = std::strtoll(argument + length, &end, 10);
  return end != argument + length && *end == '\0' && *number >= 1;
}

bool TakeArguments(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; ++i) {
    if (!TakeNumber(argv[i], "--seeds=", &arguments->seeds) &&
        !TakeNumber(argv[i], "--work=", &arguments->work)) {
      return false;
    }
  }
  return arguments->seeds <= 1'000'000 && (arguments->seeds > 0 || argc == 1);
}

int RunWithSeeds(const Arguments& arguments) {
  ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
  SeedsOfTests seeds(static_cast<int>(arguments.seeds), arguments.work, Build());
  auto* const schedules = new Schedules(&seeds);
  listeners.Append(schedules);
  int result = RUN_ALL_TESTS();
  // The report in a file has each test once, with its first run. A later one that fails is in the output.
  delete listeners.Release(listeners.default_xml_generator());
  for (std::string left = seeds.Left(); result == 0 && !left.empty(); left = seeds.Left()) {
    ::testing::GTEST_FLAG(filter) = left;
    result = RUN_ALL_TESTS();
  }
  delete listeners.Release(schedules);
  std::printf("%lld tests, %lld runs\n", static_cast<long long>(seeds.num_tests()),
              static_cast<long long>(seeds.num_runs()));
  return result;
}

int Run(int argc, char** argv) {
  Arguments arguments;
  if (!TakeArguments(argc, argv, &arguments)) {
    std::fprintf(stderr, "usage: %s [--seeds=N [--work=W]] [GoogleTest's flags]\n", argv[0]);
    return 2;
  }
  if (arguments.seeds > 0) return RunWithSeeds(arguments);
  ::testing::UnitTest::GetInstance()->listeners().Append(new Schedules(nullptr));
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace sok::on_host

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return sok::on_host::Run(argc, argv);
}
