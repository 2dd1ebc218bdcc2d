#ifndef SOK_CUDA_PROGRAMS_BENCHMARK_REPORT_H_
#define SOK_CUDA_PROGRAMS_BENCHMARK_REPORT_H_

#include <string>
#include <vector>

#include "cuda/programs/benchmark/options.h"
#include "cuda/programs/benchmark/rounds.h"
#include "cuda/programs/device_info.h"

namespace sok {

// What a run has measured.
struct BenchmarkReport {
  DeviceInfo device;
  std::string machine;  // host's processor
  BenchmarkOptions options;
  std::vector<Case> cases;            // those of a table follow its copies
  std::vector<std::string> left_out;  // and why

  // A table in Markdown: a line for each case.
  std::string Table() const;
  // {"program", "format": 1, "device": "gpu" or "host", "machine": {...}, "options": {...}, "cases": [...],
  // "left_out": [...]}. Of each case what it is, its milliseconds as quartiles, and
  //   ids_per_s, bytes_per_id, gb_per_s     by the median, and bytes by traffic.h
  //   copy_gb_per_s, read_gb_per_s          as measured in the same rounds
  //   share_of_copy                         gb_per_s / copy_gb_per_s
  std::string Json() const;
};

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_BENCHMARK_REPORT_H_
