#ifndef SOK_CUDA_PROGRAMS_BENCHMARK_FILLED_TABLE_H_
#define SOK_CUDA_PROGRAMS_BENCHMARK_FILLED_TABLE_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/base/allocators.h"
#include "cuda/engine/gpu_engine.h"
#include "cuda/table/device_table.h"

namespace sok {

// The device on which a benchmark runs.
struct BenchmarkDevice {
  cudaStream_t stream = nullptr;
  AsyncAllocator memory;
  GpuEngine engine;
  InlineExecutor executor;
  int64_t cache_bytes = 0;
  RecordFormat record;  // of tables

  EngineContext context() { return EngineContext{executor, stream}; }
};

// Hyper-parameters of an optimizer; empty for none.
std::vector<float> HyperParametersOf(const std::string& optimizer);

// A table of the engine with the keys [0, keys).
class FilledTable {
 public:
  // `optimizer` is attached before the rows are inserted; "" for none. The index has a load of about `load`,
  // at most 0.9.
  static StatusOr<FilledTable> Make(BenchmarkDevice* device, int64_t dim, const std::string& optimizer,
                                    int64_t keys, double load);

  EngineTable* get() const { return table_.get(); }
  DeviceTable& device_table() const;
  int64_t keys() const { return keys_; }
  // Keys for each place of the index.
  double load() const;

  // The rows of keys[n] on the device; inserts absent keys. Waits.
  Status FindOrMake(BenchmarkDevice* device, const int64_t* keys, int64_t n, int64_t* rows) const;
  // Erases keys[n], which are distinct. Waits.
  Status Erase(BenchmarkDevice* device, const int64_t* keys, int64_t n) const;

 private:
  std::shared_ptr<EngineTable> table_;
  int64_t keys_ = 0;
};

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_BENCHMARK_FILLED_TABLE_H_
