#ifndef SOK_CUDA_PROGRAMS_BENCHMARK_GROUP_CALLS_H_
#define SOK_CUDA_PROGRAMS_BENCHMARK_GROUP_CALLS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/base/device_buffer.h"
#include "cuda/group/group_gradients.h"
#include "cuda/programs/benchmark/batches.h"
#include "cuda/programs/benchmark/filled_table.h"

namespace sok {

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

#endif  // SOK_CUDA_PROGRAMS_BENCHMARK_GROUP_CALLS_H_
