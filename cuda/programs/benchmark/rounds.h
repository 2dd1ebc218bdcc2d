#ifndef SOK_CUDA_PROGRAMS_BENCHMARK_ROUNDS_H_
#define SOK_CUDA_PROGRAMS_BENCHMARK_ROUNDS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/programs/benchmark/quartiles.h"

namespace sok {

// Something to measure, and how it is reported. Fields that do not apply to a case are 0 or empty.
struct Case {
  std::string what;
  std::string ids_drawn;  // "uniform", "zipf 1.05"
  std::string optimizer;
  int64_t dim = 0;
  double load = 0;     // of the index
  double hotness = 0;  // ids per bag; 0 if nothing is pooled
  double ids = 0;      // what one run handles; for copies 0
  double unique = 0;   // distinct ids for each id
  double bytes = 0;    // what one run moves, by traffic.h

  std::function<Status()> prepare;  // before each run, not measured; may be empty
  std::function<Status()> run;      // enqueues the work on the stream

  Quartiles ms;  // after Rounds::Run
};

// Measures cases in rounds: each runs once in each round, so that a slow phase of the device affects all of
// them. Before each run, a write of more bytes than the cache holds flushes it. This also hides the time that
// the host takes to enqueue the work.
class Rounds {
 public:
  // `scrubbed_bytes` are written before each run.
  Rounds(cudaStream_t stream, DeviceAllocator* memory, int64_t scrubbed_bytes)
      : stream_(stream), memory_(memory), scrubbed_bytes_(scrubbed_bytes) {}

  void Add(Case added) { cases_.push_back(std::move(added)); }

  // Two rounds to warm up and `rounds` measured ones. Stops at the first error of a case.
  Status Run(int rounds);

  std::vector<Case>& cases() { return cases_; }

 private:
  StatusOr<double> Measure(const Case& measured);

  cudaStream_t stream_;
  DeviceAllocator* memory_;
  const int64_t scrubbed_bytes_;
  DeviceBuffer<char> scrubbed_;
  std::vector<Case> cases_;
};

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_BENCHMARK_ROUNDS_H_
