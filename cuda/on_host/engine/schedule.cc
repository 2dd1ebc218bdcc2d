#include "cuda/on_host/engine/schedule.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "cuda/on_host/engine/sanitizers.h"

namespace sok::on_host {
namespace {

constexpr int kMaxResidentBlocks = 64;

std::mutex schedule_mutex;
Schedule& Current() {
  static Schedule schedule = ScheduleOfEnvironment();
  return schedule;
}
std::atomic<uint64_t> launches{0}, schedules{0};
std::atomic<int64_t> steps{0}, kernels{0}, transfers{0}, bytes_to_host{0}, events{0}, allocations{0};
std::atomic<int64_t> bytes_to_device{0}, run_ns{0};

// A wrong value in the environment must not silently test something else.
[[noreturn]] void RefuseEnvironment(const char* name, const char* value) {
  std::fprintf(stderr, "on_host: %s=%s is not understood; see cuda/on_host/on_host.h\n", name, value);
  std::abort();
}

bool NumberFromEnvironment(const char* name, uint64_t* number) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return false;
  char* end = nullptr;
  *number = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0') RefuseEnvironment(name, text);
  return true;
}

const char* NameOf(Order order) {
  switch (order) {
    case Order::kInOrder:
      return "in_order";
    case Order::kRandom:
      return "random";
    case Order::kAdversarial:
      return "adversarial";
  }
  return "";
}

}  // namespace

Schedule ScheduleOfSeed(uint64_t seed) {
  Schedule schedule;
  schedule.seed = seed;
  if (seed == 0) return schedule;
  schedule.order = seed % 3 == 0 ? Order::kAdversarial : Order::kRandom;
  schedule.resident_blocks = 2 + static_cast<int>(seed % 5);
  return schedule;
}

Schedule ScheduleOfEnvironment() {
  uint64_t number = 0;
  Schedule schedule = ScheduleOfSeed(NumberFromEnvironment("SOK_ON_HOST_SEED", &number) ? number : 0);
  if (const char* text = std::getenv("SOK_ON_HOST_ORDER")) {
    const Order orders[] = {Order::kInOrder, Order::kRandom, Order::kAdversarial};
    const auto found = std::find_if(std::begin(orders), std::end(orders),
                                    [&](Order order) { return std::strcmp(NameOf(order), text) == 0; });
    if (found == std::end(orders)) RefuseEnvironment("SOK_ON_HOST_ORDER", text);
    schedule.order = *found;
  }
  if (const char* text = std::getenv("SOK_ON_HOST_STREAMS")) {
    const bool eager = std::strcmp(text, "eager") == 0;
    if (!eager && std::strcmp(text, "late") != 0) RefuseEnvironment("SOK_ON_HOST_STREAMS", text);
    schedule.streams = eager ? Streams::kEager : Streams::kLate;
  }
  if (NumberFromEnvironment("SOK_ON_HOST_BLOCKS", &number))
    schedule.resident_blocks = static_cast<int>(std::clamp<uint64_t>(number, 1, kMaxResidentBlocks));
  if (NumberFromEnvironment("SOK_ON_HOST_MAX_STEPS", &number))
    schedule.max_steps = static_cast<int64_t>(number);
  return schedule;
}

void SetSchedule(const Schedule& schedule) {
  const std::lock_guard<std::mutex> lock(schedule_mutex);
  Current() = schedule;
  Current().resident_blocks = std::clamp(schedule.resident_blocks, 1, kMaxResidentBlocks);
  launches = 0;
  ++schedules;
}

Schedule CurrentSchedule() {
  const std::lock_guard<std::mutex> lock(schedule_mutex);
  return Current();
}

std::string ToString(const Schedule& schedule) {
  char text[128];
  std::snprintf(text, sizeof(text), "seed %llu (%s, %s streams, %d resident block%s)",
                static_cast<unsigned long long>(schedule.seed), NameOf(schedule.order),
                schedule.streams == Streams::kLate ? "late" : "eager", schedule.resident_blocks,
                schedule.resident_blocks == 1 ? "" : "s");
  return text;
}

uint64_t ScheduleNumber() { return schedules; }
uint64_t NextLaunchNumber() { return launches++; }
void CountSteps(int64_t more) { steps += more; }
int64_t Steps() { return steps; }
void CountKernel() { ++kernels; }
void CountTransfer(int64_t more_bytes_to_host, int64_t more_bytes_to_device) {
  ++transfers;
  bytes_to_host += more_bytes_to_host;
  bytes_to_device += more_bytes_to_device;
}
void CountEvent() { ++events; }
void CountAllocation() { ++allocations; }
int64_t CountRunTime(int64_t since) {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  const int64_t now = int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  if (since != 0) run_ns += now - since;
  return now;
}
StreamWork EnqueuedWork() {
  return {kernels, transfers, bytes_to_host, events, allocations, bytes_to_device, run_ns};
}

const char* Build() { return HasAsan() ? "asan" : HasTsan() ? "tsan" : "plain"; }

}  // namespace sok::on_host
