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
#include "cuda/base/device_buffer.h"
#include "cuda/engine/gpu_engine.h"
#include "cuda/group/group_gradients.h"
#include "cuda/table/device_table.h"

namespace sok {

// A copy of a host array in memory from `memory`. Waits for the copy.
StatusOr<DeviceBuffer<int64_t>> OnDevice(cudaStream_t stream, DeviceAllocator* memory,
                                         const std::vector<int64_t>& values);

// The ids of one lookup on the device, as inputs of the engine.
class LookupIds {
 public:
  // hotness 0: ids without bags; else bags of about as many ids, each with at least one (by row splits).
  static StatusOr<LookupIds> Make(cudaStream_t stream, DeviceAllocator* memory,
                                  const std::vector<int64_t>& ids, double hotness, uint64_t seed);

  // Pooled lookups use the mean.
  LookupSpec spec(int table) const;
  LookupInput input() const;
  const int64_t* ids() const { return ids_.data(); }
  int64_t size() const { return ids_.size(); }
  int64_t rows() const { return bags_ > 0 ? bags_ : ids_.size(); }  // of the output
  double unique() const { return unique_; }                         // distinct ids for each id
  double hotness() const {                                          // ids for each row of the output
    return static_cast<double>(size()) / static_cast<double>(rows());
  }
  bool pooled() const { return bags_ > 0; }

 private:
  DeviceBuffer<int64_t> ids_;
  DeviceBuffer<int64_t> splits_;
  int64_t bags_ = 0;  // 0: not pooled
  double unique_ = 1;
};

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
  // at most 0.9. `share` of the rows are in device memory, and the others below it.
  static StatusOr<FilledTable> Make(BenchmarkDevice* device, int64_t dim, const std::string& optimizer,
                                    int64_t keys, double load, double share = 1);

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

// Calls of the engine on a group of tables, with one lookup in each. The outputs also serve as gradients: the
// time does not depend on their values.
class GroupCalls {
 public:
  // tables[l] is the table of ids[l]. All must outlive the result.
  static StatusOr<std::unique_ptr<GroupCalls>> Make(BenchmarkDevice* device,
                                                    std::vector<const FilledTable*> tables,
                                                    const std::vector<const LookupIds*>& ids);

  // Engine::Lookup, and Engine::Train on the last training lookup.
  Status Lookup(bool training);
  Status Train(const std::string& optimizer);

  // Only the kernels that write the outputs of the last lookup.
  Status WriteOutputs();
  // Only the kernels that sum gradients and update rows of the first table. PrepareUpdate comes first: it
  // sorts the occurrences of the last lookup.
  Status PrepareUpdate();
  Status Update(const std::string& optimizer);

 private:
  explicit GroupCalls(BenchmarkDevice* device) : device_(device) {}

  BenchmarkDevice* device_;
  std::vector<EngineTable*> tables_;
  std::vector<LookupSpec> specs_;
  std::vector<LookupInput> inputs_;
  std::vector<DeviceBuffer<float>> memory_;
  std::vector<OutputRows> outputs_;
  std::vector<GradientRows> gradients_;
  std::unique_ptr<GroupPlan> plan_;
  std::unique_ptr<EngineScratch> scratch_;
  std::unique_ptr<MergedGradients> plan_gradients_;
};

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_BENCHMARK_FILLED_TABLE_H_
