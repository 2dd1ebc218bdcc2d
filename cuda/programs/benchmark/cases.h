// What engine_benchmark measures. Each function makes tables, measures cases of them together with copies of
// memory, and appends them to `cases`.
#ifndef SOK_CUDA_PROGRAMS_BENCHMARK_CASES_H_
#define SOK_CUDA_PROGRAMS_BENCHMARK_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cuda/programs/benchmark/filled_table.h"
#include "cuda/programs/benchmark/options.h"
#include "cuda/programs/benchmark/rounds.h"

namespace sok {

// The names of the bounds, which are measured along with the cases: a copy within device memory, and a kernel
// that only reads.
constexpr char kCopy[] = "copy";
constexpr char kRead[] = "read";

// Searches for present and for absent keys, in an index of this load.
Status MeasureIndex(BenchmarkDevice* device, const BenchmarkOptions& options, double load,
                    std::vector<Case>* cases);

// Rows without slots: searches that return rows, gathers, pooling, whole lookups, find-or-insert.
Status MeasureRows(BenchmarkDevice* device, const BenchmarkOptions& options, int64_t dim, int64_t ids,
                   std::vector<Case>* cases);

// Steps of an optimizer on one table: the kernels that update rows, and the whole backward pass.
Status MeasureTraining(BenchmarkDevice* device, const BenchmarkOptions& options, int64_t dim,
                       const std::string& optimizer, std::vector<Case>* cases);

// A lookup and a step of a group of tables.
Status MeasureGroup(BenchmarkDevice* device, const BenchmarkOptions& options, int64_t dim,
                    const std::string& optimizer, std::vector<Case>* cases);

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_BENCHMARK_CASES_H_
