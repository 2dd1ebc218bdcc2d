// The schedule in use, and the random numbers that it draws.
#ifndef SOK_CUDA_ON_HOST_ENGINE_SCHEDULE_H_
#define SOK_CUDA_ON_HOST_ENGINE_SCHEDULE_H_

#include <cstdint>

#include "cuda/on_host/on_host.h"

namespace sok::on_host {

// Small and fast (Marsaglia's xorshift); not thread-safe.
class Random {
 public:
  explicit Random(uint64_t seed) : state_((seed + 1) * 0x9e3779b97f4a7c15u) {
    for (int i = 0; i < 8; ++i) Next();
  }
  uint64_t Next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ >> 8;
  }
  // Below `n` > 0.
  uint64_t Below(uint64_t n) { return Next() % n; }
  bool OneIn(uint64_t n) { return n > 0 && Next() % n == 0; }

 private:
  uint64_t state_ = 0;
};

// How often SetSchedule was called.
uint64_t ScheduleNumber();
// Counts the process's launches since the schedule was set, so that each draws different random numbers.
uint64_t NextLaunchNumber();
void CountSteps(int64_t steps);
// Add one to EnqueuedWork(); a transfer that is a copy between host and device also adds its bytes.
void CountKernel();
void CountTransfer(int64_t bytes_to_host, int64_t bytes_to_device);
void CountEvent();
void CountAllocation();
// Adds the processor time of this thread since the time that it returned before, in ns; 0 begins.
int64_t CountRunTime(int64_t since);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_SCHEDULE_H_
