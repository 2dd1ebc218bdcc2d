#ifndef SOK_BENCHMARKS_ENGINE_TWO_CORES_H_
#define SOK_BENCHMARKS_ENGINE_TWO_CORES_H_

#include <atomic>
#include <cstdint>
#include <thread>

namespace sok {

// How close two cores are. A host may run a virtual machine's two cores on two cores that share an L3, on two
// cores with an L3 each, or on the two hardware threads of one core. This may change every second, and with
// it the speed-up by a second thread.

// Passes a cache line to another thread and back `times` times. The time of one transfer shows the distance
// between the threads' cores. Both threads spin, so the machine needs at least two cores.
inline void HandOver(int64_t times) {
  alignas(128) std::atomic<int64_t> turn{0};
  std::thread other([&turn, times] {
    for (int64_t i = 0; i < times; ++i) {
      while (turn.load(std::memory_order_acquire) != 2 * i + 1) continue;
      turn.store(2 * i + 2, std::memory_order_release);
    }
  });
  for (int64_t i = 0; i < times; ++i) {
    turn.store(2 * i + 1, std::memory_order_release);
    while (turn.load(std::memory_order_acquire) != 2 * i + 2) continue;
  }
  other.join();
}

// Arithmetic in registers and L1 only, which keeps a core's units busy and shares nothing with another core.
inline void KeepBusy(int64_t passes) {
  constexpr int kFloats = 256;
  float values[kFloats] = {};
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (float& value : values) value = value * 1.0001f + 0.5f;
    asm volatile("" : : "r"(values) : "memory");  // else the compiler would remove the loop
  }
}

}  // namespace sok

#endif  // SOK_BENCHMARKS_ENGINE_TWO_CORES_H_
