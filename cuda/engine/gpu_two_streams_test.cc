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

class MemoryOfStream final : public EngineMemory {
 public:
  ~MemoryOfStream() override {
    for (void* const memory : freed_) EXPECT_EQ(cudaFree(memory), cudaSuccess);
  }
  void* Allocate(int64_t bytes) override {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, static_cast<size_t>(bytes)), cudaSuccess);
    return memory;
  }
  void Free(void* memory) override { freed_.push_back(memory); }
  void CopyIn(void* to, const void* from, int64_t bytes) override {
    Copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void CopyOut(void* to, const void* from, int64_t bytes) override {
    if (wait_first != nullptr) wait_first->Wait();
    Copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void* stream() override { return stream_.get(); }
  const DeviceStream& own_stream() const { return stream_; }

  // Before a copy to the host; null: no other stream.
  const DeviceStream* wait_first = nullptr;

 private:
  void Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    EXPECT_EQ(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_.get()), cudaSuccess);
    stream_.Wait();
  }

  const DeviceStream stream_;
  std::vector<void*> freed_;
};

// The parameter: whether a test waits for the other stream first.
class GpuTwoStreamsTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    for (const int s : {0, 1}) {
      memory_[s] = std::make_shared<MemoryOfStream>();
      case_[s] = GpuCase();
      case_[s].memory = memory_[s];
    }
    for (const int s : {0, 1}) memory_[s]->wait_first = GetParam() ? &memory_[1 - s]->own_stream() : nullptr;
  }

  void Make(const std::vector<TableOptions>& options) {
    cpu_ = std::make_unique<ContractGroup>(cpu_case_, executor_, options);
    gpu_[0] = std::make_unique<ContractGroup>(case_[0], executor_, options);
    gpu_[1] = std::make_unique<ContractGroup>(case_[1], executor_, *gpu_[0]);
  }

  // The last work of a step is not waited for.
  void Step(int stream, const ContractBatch& batch, const std::string& optimizer,
            const std::vector<float>& hyper, bool fused) {
    ASSERT_NO_FATAL_FAILURE(Lookup(stream, batch, /*training=*/true));
    const OutputValues gradients = cpu_->RandomGradients(batch, ++steps_);
    for (ContractGroup* const group : {cpu_.get(), gpu_[stream].get()}) {
      ASSERT_TRUE((fused ? group->Train(gradients, optimizer, hyper)
                         : group->BackwardAndApply(gradients, optimizer, hyper))
                      .ok());
    }
  }
  void Lookup(int stream, const ContractBatch& batch, bool training) {
    const Status on_gpu = gpu_[stream]->Lookup(batch, training);
    ASSERT_TRUE(on_gpu.ok()) << on_gpu.message();
    ASSERT_TRUE(cpu_->Lookup(batch, training).ok());
    ASSERT_EQ(gpu_[stream]->outputs(), cpu_->outputs());
  }
  void Erase(int stream, size_t t, const std::vector<int64_t>& keys) {
    int64_t on_cpu = 0;
    int64_t on_gpu = 0;
    ASSERT_TRUE(cpu_->Erase(t, keys, &on_cpu).ok());
    ASSERT_TRUE(gpu_[stream]->Erase(t, keys, &on_gpu).ok());
    ASSERT_EQ(on_gpu, on_cpu);
  }
  // call(held) on the table of both engines.
  template <typename Call>
  void WhileHeld(int stream, size_t t, const Call& call) {
    for (ContractGroup* const group : {cpu_.get(), gpu_[stream].get()}) {
      const auto held = group->table(t).Hold(group->context());
      ASSERT_TRUE(held.ok());
      ASSERT_TRUE(call(held.value().get()).ok());
    }
  }
  void ExpectSameContents(int stream) {
    for (size_t t = 0; t < cpu_->tables().size(); ++t) {
      ASSERT_EQ(ContentsOf(&gpu_[stream]->table(t), gpu_[stream]->context()),
                ContentsOf(&cpu_->table(t), cpu_->context()))
          << "table " << t;
    }
  }
  InlineExecutor executor_;
  const EngineCase cpu_case_ = CpuCase();
  std::shared_ptr<MemoryOfStream> memory_[2];
  EngineCase case_[2];
  std::unique_ptr<ContractGroup> cpu_, gpu_[2];
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
    ASSERT_NO_FATAL_FAILURE(Lookup(0, KeysFrom(0, 6, 1), /*training=*/false));
    ASSERT_NO_FATAL_FAILURE(Step(0, KeysFrom(0, 4, 1), "sgd", {0.5f}, fused));
    ASSERT_NO_FATAL_FAILURE(Erase(1, 0, {1, 2}));
    ASSERT_NO_FATAL_FAILURE(ExpectSameContents(0));
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
  for (size_t t = 0; t < tables; ++t) {
    WhileHeld(0, t, [](HeldTable* held) { return held->TrackChanges(); });
  }
  int64_t keys = 4;
  for (const int stream : {0, 1, 1, 0, 1, 0}) {
    SCOPED_TRACE(steps_);
    // Some of the last step's keys again, and others that are new. The table of another step's rates is
    // replaced.
    const std::vector<float> hyper = {0.1f, stream == 0 ? 0.9f : 0.8f, 0.99f, 1e-3f};
    ASSERT_NO_FATAL_FAILURE(Step(stream, KeysFrom(keys / 2, keys, tables), "adam", hyper, steps_ % 2 == 0));
    ASSERT_NO_FATAL_FAILURE(Erase(1 - stream, steps_ % tables, {keys / 2, keys / 2 + 1, keys / 2 + 3}));
    keys += keys / 2;
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSameContents(1));
}

// A table frees its memory when the work on it is done, on whatever stream.
TEST_P(GpuTwoStreamsTest, ATableIsDestroyedAfterTheWorkOnIt) {
  for (const int stream : {0, 1}) {
    Make({ContractOptions("table", 3)});
    ASSERT_NO_FATAL_FAILURE(Step(0, KeysFrom(0, 4, 1), "adam", SampleHyperOf("adam"), true));
    ASSERT_NO_FATAL_FAILURE(Step(stream, KeysFrom(2, 30, 1), "adam", SampleHyperOf("adam"), true));
    gpu_[1].reset();
    gpu_[0].reset();
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
  ASSERT_TRUE(gpu_[0]->table(0).SetGlobalStep(100).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectSameContents(0));
  ASSERT_NO_FATAL_FAILURE(Step(0, KeysFrom(2, 4, 1), "sgd", {0.5f}, true));
  ASSERT_NO_FATAL_FAILURE(ExpectSameContents(1));
}

INSTANTIATE_TEST_SUITE_P(WaitFor, GpuTwoStreamsTest, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "TheOtherFirst" : "TheCallsOwn"; });

}  // namespace
}  // namespace sok
