// Sessions on streams of their own use the same tables: the calls' results are those of the CPU engine, which
// runs one call after the other, and no memory is used after one stream has freed it and before another is
// done.
//
// Nothing in a test may order the streams but the engine. So arrays are freed at the end, since cudaFree
// waits for the device, and a test waits for one of the streams at a time: for that of the call first, which
// then misses what it did not wait for; or for the other one first, which then has freed what it should not
// have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/base/testing/device_array.h"
#include "cuda/engine/testing/twin_groups.h"

namespace sok {
namespace {

class MemoryOfStream final : public GpuTestMemory {
 public:
  ~MemoryOfStream() override {
    for (void* const memory : freed_) GpuTestMemory::Free(memory);
  }
  void Free(void* memory) override { freed_.push_back(memory); }
  void CopyOut(void* to, const void* from, int64_t bytes) override {
    if (wait_first != nullptr) wait_first->Wait();
    GpuTestMemory::CopyOut(to, from, bytes);
  }

  // Before a copy to the host; null: no other stream.
  const DeviceStream* wait_first = nullptr;

 private:
  std::vector<void*> freed_;
};

// The parameter: whether a test waits for the other stream first.
class GpuTwoStreamsTest : public TwinGroupsTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    for (const int s : {0, 1}) {
      memory_[s] = std::make_shared<MemoryOfStream>();
      case_[s] = GpuCase();
      case_[s].memory = memory_[s];
    }
    for (const int s : {0, 1}) memory_[s]->wait_first = GetParam() ? &memory_[1 - s]->own_stream() : nullptr;
  }
  // Groups end before their memory.
  void TearDown() override { gpu_.reset(); }

  void Make(const std::vector<TableOptions>& options) {
    tables_ = options.size();
    cpu_ = std::make_unique<ContractGroup>(cpu_case_, executor_, options);
    of_stream_[0] = std::make_shared<ContractGroup>(case_[0], executor_, options);
    of_stream_[1] = std::make_shared<ContractGroup>(case_[1], executor_, *of_stream_[0]);
  }
  // The stream of later calls.
  void Use(int stream) { gpu_ = of_stream_[stream]; }

  // The last work of a step is not waited for.
  void Step(int stream, const ContractBatch& batch, const std::string& optimizer,
            const std::vector<float>& hyper, bool fused) {
    Use(stream);
    ASSERT_NO_FATAL_FAILURE(Lookup(batch, /*training=*/true));
    const OutputValues gradients = cpu_->RandomGradients(batch, ++steps_);
    for (ContractGroup* const group : {cpu_.get(), gpu_.get()}) {
      ASSERT_TRUE((fused ? group->Train(gradients, optimizer, hyper)
                         : group->BackwardAndApply(gradients, optimizer, hyper))
                      .ok());
    }
  }
  // call(held) on the table of both engines.
  template <typename Call>
  void WhileHeld(size_t t, const Call& call) {
    for (ContractGroup* const group : {cpu_.get(), gpu_.get()}) {
      const auto held = group->table(t).Hold(group->context());
      ASSERT_TRUE(held.ok());
      ASSERT_TRUE(call(held.value().get()).ok());
    }
  }

  std::shared_ptr<MemoryOfStream> memory_[2];
  EngineCase case_[2];
  std::shared_ptr<ContractGroup> of_stream_[2];
  uint32_t steps_ = 0;
};

// A lookup of each table, of `n` keys from `first` on.
ContractBatch KeysFrom(int64_t first, int64_t n, size_t tables) {
  ContractBatch batch;
  for (size_t t = 0; t < tables; ++t) {
    std::vector<std::vector<int64_t>> bags;
    for (int64_t key = first; key < first + n; key += 2) bags.push_back({key, key + 1, key});
    batch.push_back(SumOf(static_cast<int>(t), bags));
  }
  return batch;
}

TEST_P(GpuTwoStreamsTest, EachCallSeesWhatTheOneBeforeLeft) {
  for (const bool fused : {true, false}) {
    Make({ContractOptions("table", 3)});
    for (const int stream : {0, 0, 1, 1, 0, 1}) {
      ASSERT_NO_FATAL_FAILURE(Step(stream, KeysFrom(0, 4, 1), "sgd", {0.5f}, fused));
    }
    Use(0);
    ASSERT_NO_FATAL_FAILURE(Lookup(KeysFrom(0, 6, 1), /*training=*/false));
    ASSERT_NO_FATAL_FAILURE(Step(0, KeysFrom(0, 4, 1), "sgd", {0.5f}, fused));
    Use(1);
    ASSERT_NO_FATAL_FAILURE(Erase(0, {1, 2}));
    Use(0);
    ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
  }
}

// Index, rows, columns, waiting ids, changes and the optimizer's arrays grow on one stream while the other
// has used them last, or has allocated them.
TEST_P(GpuTwoStreamsTest, TablesGrow) {
  std::vector<TableOptions> options = TablesOfAllKinds();
  for (TableOptions& of_table : options) {
    of_table.dim = std::min<int64_t>(of_table.dim, 5);
    if (of_table.initializer.kind == InitializerKind::kGiven) GiveRows(7, &of_table);
    if (of_table.capacity > 0) of_table.capacity = 40;
  }
  Make(options);
  const size_t tables = options.size();
  Use(0);
  for (size_t t = 0; t < tables; ++t) {
    WhileHeld(t, [](HeldTable* held) { return held->TrackChanges(); });
  }
  int64_t keys = 4;
  for (const int stream : {0, 1, 1, 0, 1, 0}) {
    SCOPED_TRACE(steps_);
    // Some of the last step's keys again, and others that are new. The table of another step's rates is
    // replaced.
    const std::vector<float> hyper = {0.1f, stream == 0 ? 0.9f : 0.8f, 0.99f, 1e-3f};
    ASSERT_NO_FATAL_FAILURE(Step(stream, KeysFrom(keys / 2, keys, tables), "adam", hyper, steps_ % 2 == 0));
    Use(1 - stream);
    ASSERT_NO_FATAL_FAILURE(Erase(steps_ % tables, {keys / 2, keys / 2 + 1, keys / 2 + 3}));
    keys += keys / 2;
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
}

// A table frees its memory when the work on it is done, on whatever stream.
TEST_P(GpuTwoStreamsTest, ATableIsDestroyedAfterTheWorkOnIt) {
  for (const int stream : {0, 1}) {
    Make({ContractOptions("table", 3)});
    ASSERT_NO_FATAL_FAILURE(Step(0, KeysFrom(0, 4, 1), "adam", SampleHyperOf("adam"), true));
    ASSERT_NO_FATAL_FAILURE(Step(stream, KeysFrom(2, 30, 1), "adam", SampleHyperOf("adam"), true));
    gpu_.reset();
    of_stream_[1].reset();
    of_stream_[0].reset();
    for (const int s : {1 - stream, stream}) memory_[s]->own_stream().Wait();
  }
}

// The table's clock moves without a stream of the caller's: in the order of the calls before and after.
TEST_P(GpuTwoStreamsTest, AClockMovesBetweenCalls) {
  TableOptions options = ContractOptions("table", 3);
  options.eviction.kind = Eviction::Kind::kGlobalStep;
  options.eviction.steps_to_live = 5;
  Make({options});
  const ContractBatch batch = KeysFrom(0, 4, 1);
  ASSERT_NO_FATAL_FAILURE(Step(0, batch, "sgd", {0.5f}, true));
  ASSERT_NO_FATAL_FAILURE(Step(1, batch, "sgd", {0.5f}, true));
  ASSERT_TRUE(cpu_->table(0).SetGlobalStep(100).ok());
  Use(0);
  ASSERT_TRUE(gpu_->table(0).SetGlobalStep(100).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
  ASSERT_NO_FATAL_FAILURE(Step(0, KeysFrom(2, 4, 1), "sgd", {0.5f}, true));
  Use(1);
  ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
}

INSTANTIATE_TEST_SUITE_P(WaitFor, GpuTwoStreamsTest, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "TheOtherFirst" : "TheCallsOwn"; });

}  // namespace
}  // namespace sok
