// For tests of kernels: controls how kernels and streams are scheduled on the host, and counts what they did.
//
// A schedule is drawn from a seed, so a run can be repeated. The environment says which one a process starts
// with:
//   SOK_ON_HOST_SEED=N        0 (the default): threads, blocks and streams in order. Others: drawn at random.
//   SOK_ON_HOST_ORDER=...     in_order, random or adversarial, whatever the seed.
//   SOK_ON_HOST_STREAMS=eager work runs when it is enqueued on a stream. The default is `late`.
//   SOK_ON_HOST_BLOCKS=N      blocks that run interleaved, 1 to 64.
//   SOK_ON_HOST_MAX_STEPS=N   a launch that takes more steps is reported as one that never ends.
//
// Thread safety: all functions may be called from any thread.
#ifndef SOK_CUDA_ON_HOST_ON_HOST_H_
#define SOK_CUDA_ON_HOST_ON_HOST_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace sok::on_host {

enum class Order {
  kInOrder,      // a thread runs until it waits, blocks follow one another: few switches, the fastest
  kRandom,       // at every switch point, any thread that can run may run next
  kAdversarial,  // some threads run far ahead of others; the last work enqueued on streams runs first
};

enum class Streams {
  kLate,   // work runs when something waits for it
  kEager,  // work runs when it is enqueued on a stream, for debugging
};

struct Schedule {
  uint64_t seed = 0;
  Order order = Order::kInOrder;
  Streams streams = Streams::kLate;
  int resident_blocks = 1;          // blocks that run interleaved, at most 64
  int64_t max_steps = 100'000'000;  // of a launch
};

// The schedule that the seed alone determines: 0 is in order, every third adversarial, the others random.
Schedule ScheduleOfSeed(uint64_t seed);
// The schedule from the environment.
Schedule ScheduleOfEnvironment();

// Applies to launches that run from now on. Restarts the random numbers, so what follows is reproducible.
void SetSchedule(const Schedule& schedule);
Schedule CurrentSchedule();
// "seed 7 (random, late streams, 4 resident blocks)".
std::string ToString(const Schedule& schedule);

// How often a CUDA thread was resumed, in all launches of the process.
int64_t Steps();
// Kernels and copies in streams that have not run.
int64_t PendingWork();
// What was enqueued on streams, and allocated, since the process began.
struct StreamWork {
  int64_t kernels = 0;    // a call of a device-wide algorithm of CUB counts as one; on a device it is several
  int64_t transfers = 0;  // copies and memsets of at least a byte
  int64_t bytes_to_host = 0;    // of copies from device memory to the host's
  int64_t events = 0;           // recorded
  int64_t allocations = 0;      // of device memory, by whichever function
  int64_t bytes_to_device = 0;  // of copies from the host's memory to device memory
  // Processor time of the threads that ran this work, which a device would do: not that of the program.
  int64_t run_ns = 0;
};
StreamWork EnqueuedWork();
// Bytes of device memory that are allocated.
size_t DeviceBytesInUse();
// An allocation beyond this limit fails with cudaErrorMemoryAllocation. Initially 80 GiB.
void SetDeviceMemoryLimit(size_t bytes);

// The kind of sanitizer this process runs under: "plain", "asan" or "tsan".
const char* Build();

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ON_HOST_H_
