// Each planted mistake is noticed by the builds that should notice it, and by no others. No other test would
// fail if a change of the engine hid mistakes from ThreadSanitizer.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "cuda/on_host/on_host.h"
#include "cuda/on_host/testing/planted_kernels.h"
#include "gtest/gtest.h"

namespace sok::on_host {

// Deliberate mistakes that the engine must find.

// How a build notices a mistake.
enum class Noticed {
  kAlways,   // in the first schedule
  kSomehow,  // in one of the schedules that planted_test tries
  kNever,    // in none of them
};

struct Mistake {
  const char* name;
  // Makes the mistake. Returns whether the results equal those of a program without it.
  bool (*make)();
  Noticed plain, asan, tsan;
  // The report of a plain build, or "wrong results"; a regular expression.
  const char* report;
};

// For GoogleTest's output.
inline void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

namespace {

constexpr int kInts = kPlantedBlocks * kPlantedThreads;

// None of the mistakes makes a call return an error.
void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "planted: %s\n", cudaGetErrorString(error));
  std::_Exit(3);
}

int* Allocate(int ints) {
  int* data = nullptr;
  Check(cudaMalloc(&data, ints * sizeof(int)));
  return data;
}
int* AllocateZeros(int ints) {
  int* const data = Allocate(ints);
  Check(cudaMemset(data, 0, ints * sizeof(int)));
  return data;
}
int* AllocatePinned(int ints) {
  int* data = nullptr;
  Check(cudaMallocHost(&data, ints * sizeof(int)));
  std::fill_n(data, ints, 0);
  return data;
}
std::vector<int> Fetch(const int* data, int ints) {
  std::vector<int> values(ints);
  Check(cudaMemcpy(values.data(), data, ints * sizeof(int), cudaMemcpyDeviceToHost));
  return values;
}
cudaStream_t NewStream() {
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

// Runs a launcher on zeros and returns what it left.
using Launcher = cudaError_t (*)(cudaStream_t, int*, int);
std::vector<int> ResultsOf(Launcher launch, int n, int ints = kInts) {
  int* const data = AllocateZeros(ints);
  Check(launch(nullptr, data, n));
  const std::vector<int> results = Fetch(data, ints);
  Check(cudaFree(data));
  return results;
}

// A mistake that only a report shows.
template <Launcher kLaunch, int kN = 0, int kAllocated = kInts>
bool RunsWithoutReport() {
  ResultsOf(kLaunch, kN, kAllocated);
  return true;
}

bool AllAre(const std::vector<int>& values, const std::function<int(int)>& expected) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != expected(static_cast<int>(i))) return false;
  }
  return true;
}

// ---- Kernels with wrong results. ----

bool ReadsUnwritten() {
  int* const data = Allocate(kInts);
  Check(LaunchReadsUnwritten(nullptr, data, kInts));
  return Fetch(data, 1)[0] == 0;
}
bool ReadsUnwrittenShared() {
  const std::vector<int> results = ResultsOf(LaunchReadsUnwrittenShared, 0);
  return std::all_of(results.begin(), results.end(), [](int value) { return value == 0; });
}
bool NoBarrier() {
  return AllAre(ResultsOf(LaunchNoBarrier, 0),
                [](int i) { return kPlantedThreads - 1 - i % kPlantedThreads; });
}
bool InStep() {
  return AllAre(ResultsOf(LaunchInStep, 0), [](int i) { return (i % kPlantedThreads ^ 1) + 32; });
}
bool LostUpdates() { return ResultsOf(LaunchLostUpdates, 0)[0] == kInts; }
bool LostPlainUpdates() { return ResultsOf(LaunchLostPlainUpdates, 0)[0] == kInts; }
bool IsPublished(const std::vector<int>& results) {
  return std::all_of(&results[2], &results[1 + kPlantedBlocks], [](int v) { return v == 0 || v == 43; });
}
bool PublishTooEarly() { return IsPublished(ResultsOf(LaunchPublishTooEarly, 0)); }
bool PublishRelaxed() { return IsPublished(ResultsOf(LaunchPublishRelaxed, 0)); }

// ---- Mistakes of host code. ----

bool HostReads() {
  const int* const data = AllocateZeros(kInts);
  return *static_cast<const volatile int*>(data) == 0;
}

// Memory that a kernel and a copy have used just before.
bool HostReadsAfterKernel() {
  const int* const data = AllocateZeros(kInts);
  Check(LaunchCopy(nullptr, AllocateZeros(kPlantedThreads), data));
  Check(cudaDeviceSynchronize());
  return Fetch(data, 1)[0] == 0 && *static_cast<const volatile int*>(data) == 0;
}

// A function of the host between two kernels that use the memory.
bool HostFunctionReads() {
  static int value;
  int* const data = AllocateZeros(kInts);
  Check(LaunchSlow(nullptr, data, 1));
  const cudaHostFn_t read = [](void* from) { value = *static_cast<const volatile int*>(from); };
  Check(cudaLaunchHostFunc(nullptr, read, data));
  Check(LaunchSlow(nullptr, data, 1));
  Check(cudaDeviceSynchronize());
  return value == kPlantedThreads;
}

// A kernel that uses an ordinary array of the host.
bool Pageable() {
  const std::vector<int> values(kPlantedThreads, 5);
  int* const data = AllocateZeros(kPlantedThreads);
  Check(LaunchCopy(nullptr, data, values.data()));
  return Fetch(data, 1)[0] == 5;
}

bool UseAfterFree() {
  int* const data = AllocateZeros(kInts);
  Check(cudaFree(data));
  Check(LaunchSlow(nullptr, data, 1));
  Check(cudaDeviceSynchronize());
  return true;
}

// Pinned memory that a copy has not reached yet.
bool ResultNotAwaited() {
  const cudaStream_t stream = NewStream();
  int* const data = AllocateZeros(kInts);
  int* const result = AllocatePinned(1);
  Check(cudaDeviceSynchronize());
  Check(LaunchSlow(stream, data, 2));
  Check(cudaMemcpyAsync(result, data, sizeof(int), cudaMemcpyDeviceToHost, stream));
  const bool right = *result == 2 * kPlantedThreads;
  Check(cudaStreamSynchronize(stream));
  return right;
}

// Pinned memory that is reused before it was copied.
bool SourceChangedTooEarly() {
  const cudaStream_t stream = NewStream();
  int* const data = AllocateZeros(1);
  int* const source = AllocatePinned(1);
  Check(cudaDeviceSynchronize());
  *source = 1;
  Check(cudaMemcpyAsync(data, source, sizeof(int), cudaMemcpyHostToDevice, stream));
  *source = 2;
  Check(cudaStreamSynchronize(stream));
  return Fetch(data, 1)[0] == 1;
}

// Two streams that nothing orders.
bool NoEventBetweenStreams() {
  const cudaStream_t first = NewStream(), second = NewStream();
  int *const data = AllocateZeros(kPlantedThreads), *const copy = AllocateZeros(kPlantedThreads);
  Check(cudaDeviceSynchronize());
  Check(LaunchSlow(first, data, 1));
  Check(LaunchCopy(second, copy, data));
  Check(cudaDeviceSynchronize());
  return Fetch(copy, 1)[0] == kPlantedThreads;
}

// cudaMemcpy from memory that is not pinned returns before the device has the bytes, and a stream that does
// not wait for the null stream does not wait for them.
bool StreamBesideMemcpy() {
  const cudaStream_t stream = NewStream();
  int *const data = AllocateZeros(kPlantedThreads), *const copy = AllocateZeros(kPlantedThreads);
  Check(cudaDeviceSynchronize());
  const std::vector<int> values(kPlantedThreads, 5);
  Check(cudaMemcpy(data, values.data(), kPlantedThreads * sizeof(int), cudaMemcpyHostToDevice));
  Check(LaunchCopy(stream, copy, data));
  Check(cudaStreamSynchronize(stream));
  return Fetch(copy, 1)[0] == 5;
}

// Memory freed in one stream while work of another uses it.
bool FreedInUse() {
  const cudaStream_t user = NewStream(), owner = NewStream();
  int* data = nullptr;
  Check(cudaMallocAsync(&data, kInts * sizeof(int), owner));
  Check(cudaMemsetAsync(data, 0, kInts * sizeof(int), owner));
  Check(cudaStreamSynchronize(owner));
  Check(LaunchSlow(user, data, 1));
  Check(cudaFreeAsync(data, owner));
  Check(cudaStreamSynchronize(owner));
  Check(cudaStreamSynchronize(user));
  return true;
}

// Memory used in a stream before that of its cudaMallocAsync has reached it.
bool UsedBeforeAllocated() {
  const cudaStream_t user = NewStream(), owner = NewStream();
  int* data = nullptr;
  Check(cudaMallocAsync(&data, kInts * sizeof(int), owner));
  Check(LaunchSlow(user, data, 1));
  Check(cudaStreamSynchronize(user));
  return true;
}

constexpr Noticed kAlways = Noticed::kAlways, kSomehow = Noticed::kSomehow, kNever = Noticed::kNever;

}  // namespace

const std::vector<Mistake>& PlantedMistakes() {
  static const auto& mistakes = *new std::vector<Mistake>{
      // name, function, plain, AddressSanitizer, ThreadSanitizer, report
      {"PastEnd", RunsWithoutReport<LaunchPastEnd, kInts>, kAlways, kAlways, kAlways,
       "writes 4 bytes of .*offset 2048"},
      {"JustPastEnd", RunsWithoutReport<LaunchPastEnd, 100, 100>, kAlways, kAlways, kNever,
       "writes 4 bytes of .*offset 400 of 400"},
      {"PastDynamicShared", RunsWithoutReport<LaunchPastDynamicShared, 16>, kAlways, kAlways, kAlways,
       "offset 64 of 64 bytes of dynamic shared memory"},
      {"PastStaticShared", RunsWithoutReport<LaunchPastStaticShared, 1>, kAlways, kAlways, kAlways,
       "index 128 is out of the bounds of 'int \\[128\\]'"},
      {"MisalignedVector", RunsWithoutReport<LaunchMisalignedVector, 1, 1024>, kAlways, kAlways, kAlways,
       "not aligned to 16 bytes"},
      {"MisalignedAtomic", RunsWithoutReport<LaunchMisalignedAtomic, 1>, kAlways, kAlways, kAlways,
       "not aligned"},
      {"ReadsUnwritten", ReadsUnwritten, kAlways, kAlways, kAlways, "wrong results"},
      {"ReadsUnwrittenShared", ReadsUnwrittenShared, kAlways, kAlways, kAlways, "wrong results"},
      {"LocalOfAnotherThread", RunsWithoutReport<LaunchLocalOfAnotherThread>, kAlways, kNever, kNever,
       "a local variable of thread 1"},
      {"StackOverflow", RunsWithoutReport<LaunchStackOverflow, 100000>, kAlways, kAlways, kAlways,
       "needs more than 65536 bytes"},
      {"DivergentBarrier", RunsWithoutReport<LaunchDivergentBarrier>, kAlways, kAlways, kAlways,
       "have left the kernel|stuck"},
      {"TwoBarriers", RunsWithoutReport<LaunchTwoBarriers>, kAlways, kAlways, kAlways,
       "waits at another one"},
      {"BarrierAfterReturn", RunsWithoutReport<LaunchBarrierAfterReturn>, kAlways, kAlways, kAlways,
       "have left the kernel|stuck"},
      {"MasksDiffer", RunsWithoutReport<LaunchMasksDiffer>, kAlways, kAlways, kAlways,
       "a shuffle with mask ffff"},
      {"LaneMissing", RunsWithoutReport<LaunchLaneMissing>, kAlways, kAlways, kAlways,
       "lane 5, which has left|stuck"},
      {"LaneNotInMask", RunsWithoutReport<LaunchLaneNotInMask>, kAlways, kAlways, kAlways,
       "__match_any_sync with mask fffffffe, in which the calling lane 0 is not"},
      {"ReadsLaneOutsideMask", RunsWithoutReport<LaunchReadsLaneOutsideMask>, kAlways, kAlways, kAlways,
       "reads lane 20, which is not in it"},
      {"NoBarrier", NoBarrier, kAlways, kAlways, kAlways, "wrong results"},
      {"InStep", InStep, kNever, kNever, kAlways, ""},
      {"LostUpdates", LostUpdates, kSomehow, kSomehow, kSomehow, "wrong results"},
      {"LostPlainUpdates", LostPlainUpdates, kSomehow, kNever, kAlways, "wrong results"},
      {"PublishTooEarly", PublishTooEarly, kSomehow, kSomehow, kSomehow, "wrong results"},
      {"PublishRelaxed", PublishRelaxed, kNever, kNever, kSomehow, ""},
      {"ScopeOfBlock", RunsWithoutReport<LaunchScopeOfBlock>, kAlways, kAlways, kAlways,
       "another block uses too"},
      {"NeverEnds", RunsWithoutReport<LaunchNeverEnds>, kAlways, kAlways, kAlways, "does not come to an end"},
      {"NeverWaits", RunsWithoutReport<LaunchNeverWaits>, kAlways, kAlways, kAlways,
       "never waits for the kernels before its own"},
      {"ReadsBeforeItWaits", RunsWithoutReport<LaunchReadsBeforeItWaits>, kAlways, kNever, kNever,
       "reads device memory before it waits"},
      {"AddsBeforeItWaits", RunsWithoutReport<LaunchAddsBeforeItWaits>, kAlways, kAlways, kAlways,
       "an atomic operation before the kernel waits"},
      {"HostReads", HostReads, kAlways, kAlways, kAlways,
       "the host touched .*offset 0 of 2048 bytes of device memory"},
      {"HostReadsAfterKernel", HostReadsAfterKernel, kAlways, kAlways, kAlways,
       "the host touched .*offset 0 of 2048 bytes of device memory"},
      {"HostFunctionReads", HostFunctionReads, kAlways, kAlways, kAlways,
       "the host touched .*offset 0 of 2048 bytes of device memory"},
      {"Pageable", Pageable, kAlways, kNever, kNever, "memory of the host that is not pinned"},
      {"UseAfterFree", UseAfterFree, kAlways, kAlways, kAlways, "which was freed"},
      {"ResultNotAwaited", ResultNotAwaited, kAlways, kAlways, kAlways, "wrong results"},
      {"SourceChangedTooEarly", SourceChangedTooEarly, kAlways, kAlways, kAlways, "wrong results"},
      {"NoEventBetweenStreams", NoEventBetweenStreams, kSomehow, kSomehow, kAlways, "wrong results"},
      {"StreamBesideMemcpy", StreamBesideMemcpy, kSomehow, kSomehow, kAlways, "wrong results"},
      {"FreedInUse", FreedInUse, kSomehow, kSomehow, kSomehow, "which was freed"},
      {"UsedBeforeAllocated", UsedBeforeAllocated, kSomehow, kSomehow, kSomehow, "not allocated yet"},
  };
  return mistakes;
}

}  // namespace sok::on_host

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
