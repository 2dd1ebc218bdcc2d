// What engine_benchmark measures. Each function makes tables, measures cases of them together with copies of
// memory, and appends them to `cases`.
#ifndef SOK_CUDA_PROGRAMS_BENCHMARK_CASES_H_
#define SOK_CUDA_PROGRAMS_BENCHMARK_CASES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/programs/benchmark/draw_ids.h"
#include "cuda/programs/benchmark/filled_table.h"
#include "cuda/programs/benchmark/options.h"
#include "cuda/programs/benchmark/rounds.h"
#include "cuda/programs/traffic.h"

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

// The same with tables of which a part is in device memory, each step with another batch.
Status MeasureTiers(BenchmarkDevice* device, const BenchmarkOptions& options, int64_t dim,
                    std::vector<Case>* cases);

// Helpers that the cases share.

// Keys of a table whose records have `bytes` bytes.
int64_t KeysFor(const BenchmarkOptions& options, double bytes);

// The BatchShape of these ids, with the optimizer's slots.
BatchShape ShapeOf(const BenchmarkDevice& device, const LookupIds& ids, int64_t dim,
                   const std::string& optimizer, double load);
// Of a table with these slots and no ids.
BatchShape RecordOf(const BenchmarkDevice& device, int64_t dim, const std::string& optimizer);

// A case of a batch; the caller fills in prepare, run and bytes.
Case CaseOf(const std::string& what, const IdsDrawn& drawn, const LookupIds& ids, const BatchShape& shape);

// Rounds that include the bounds, with the memory that these need.
class RoundsWithBounds {
 public:
  static StatusOr<RoundsWithBounds> Make(BenchmarkDevice* device, const BenchmarkOptions& options);

  void Add(Case added) { rounds_.Add(std::move(added)); }
  // Measures, and appends the cases without their functions.
  Status Run(int rounds, std::vector<Case>* cases);

 private:
  explicit RoundsWithBounds(Rounds rounds) : rounds_(std::move(rounds)) {}

  Rounds rounds_;
  DeviceBuffer<float> from_, to_;
  DeviceBuffer<int32_t> found_;
};

// The two distributions of ids with which all cases are measured.
std::vector<IdsDrawn> Distributions(const BenchmarkOptions& options);

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_BENCHMARK_CASES_H_
