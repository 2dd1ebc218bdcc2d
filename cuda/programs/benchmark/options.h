#ifndef SOK_CUDA_PROGRAMS_BENCHMARK_OPTIONS_H_
#define SOK_CUDA_PROGRAMS_BENCHMARK_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/table/record_layout.h"

namespace sok {

// What engine_benchmark measures.
struct BenchmarkOptions {
  int rounds = 15;
  int64_t ids = 1 << 20;  // of a batch
  std::vector<int64_t> dims = {8, 16, 32, 64, 128, 256};
  std::vector<int64_t> more_ids = {1 << 16, 1 << 22};  // further sizes of a batch, at one dim
  int64_t keys = 16'000'000;                           // of the index
  int64_t table_bytes = int64_t{4} << 30;              // records of a table, or of all tables of a group
  double hotness = 10;                                 // ids of a bag
  double zipf = 1.05;
  RecordFormat record;  // of all tables
  int64_t group_tables = 26;
  int64_t group_bags = 4096;
  std::vector<int64_t> group_dims = {16, 64, 128};
  int64_t copied_bytes = int64_t{1} << 30;
  int64_t scrubbed_bytes = int64_t{256} << 20;
  double seconds = 240;                          // no new table is started after that
  std::vector<double> shares = {0.5, 0.2, 0.1};  // of the rows in device memory, for tiers
  std::vector<std::string> parts = {"index", "rows", "training", "group", "tiers"};
  std::string json;  // file to write

  bool Measures(const std::string& part) const;
};

// From the command line. InvalidArgument for unknown arguments; the message explains the usage.
StatusOr<BenchmarkOptions> ParseBenchmarkOptions(int argc, char** argv);

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_BENCHMARK_OPTIONS_H_
