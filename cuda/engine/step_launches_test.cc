// The number of kernels that a step launches equals that in docs/performance-gpu.md, and a step copies
// neither ids nor rows to the host. Runs on the host, where CUB's radix sort counts as one kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/engine/contract/contract_batch.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/lookup/divisor.h"
#include "cuda/base/transfers.h"
#include "cuda/engine/testing/gpu_case.h"
#include "cuda/on_host/on_host.h"

namespace sok {
namespace {

// CUB's radix sort of 2^20 ids on a device: a histogram, its sums, and a pass for each 8 of 20 bits.
constexpr int64_t kKernelsOfSort = 5;
const std::vector<float> kAdam = {0.01f, 0.9f, 0.999f, 1e-8f};

struct Work {
  int64_t kernels = 0;
  int64_t transfers = 0;
  int64_t bytes_to_host = 0;
  int64_t events = 0;
  int64_t waits = 0;  // of the host
  int64_t allocations = 0;
};

struct StepWork {
  Work lookup;
  Work backward;
};

// The work that `call` enqueues.
template <typename Call>
Work WorkOf(const Call& call) {
  const on_host::StreamWork before = on_host::EnqueuedWork();
  const int64_t waits = RoundTrip::count();
  const Status status = call();
  EXPECT_TRUE(status.ok()) << status.message();
  const on_host::StreamWork after = on_host::EnqueuedWork();
  return {after.kernels - before.kernels,
          after.transfers - before.transfers,
          after.bytes_to_host - before.bytes_to_host,
          after.events - before.events,
          RoundTrip::count() - waits,
          after.allocations - before.allocations};
}

// Tables with a sparse lookup in each, called as an op calls the engine: its inputs and outputs are on the
// device.
class Group {
 public:
  // `memory`: of calls; null for the engine's own.
  explicit Group(int num_tables, StreamMemory* memory = nullptr, const TierOptions& tiers = {})
      : scratch_(engine_.engine->NewScratch()),
        backward_scratch_(engine_.engine->NewScratch()),
        call_memory_(memory) {
    for (int t = 0; t < num_tables; ++t) {
      TableOptions options = ContractOptions("table" + std::to_string(t), kDim);
      options.tiers = tiers;
      auto made = engine_.engine->MakeTable(context(), options);
      EXPECT_TRUE(made.ok()) << made.status().message();
      tables_.push_back(std::move(made.value()));
      pointers_.push_back(tables_.back().get());
      rows_.emplace_back(*engine_.memory, std::vector<float>(kBags * kDim, 0.5f));
    }
  }

  // A step with the ids `first`, `first` + 1 and `first` + 2 in each table: in three bags, by default so long
  // that each id's gradients are summed in pieces.
  StepWork Step(const std::string& optimizer, int64_t first = 0, int64_t ids_of_bag = kSegmentPiece / 2) {
    StepWork work;
    work.lookup = Lookup(plan_.get(), first, ids_of_bag, /*training=*/true);
    std::vector<GradientRows> gradients;
    std::vector<EngineStep> steps;
    for (size_t t = 0; t < tables_.size(); ++t) {
      gradients.push_back({rows_[t].data(), kDim});
      steps.push_back({static_cast<int>(t), pointers_[t], kAdam});
    }
    work.backward = WorkOf([&] {
      return engine_.engine->Train(context(), *plan_, gradients, optimizer, steps, backward_scratch_.get());
    });
    return work;
  }

  // A lookup of these ids that only reads.
  Work Read(int64_t first = 0, int64_t ids_of_bag = kSegmentPiece / 2) {
    return Lookup(engine_.engine->NewPlan().get(), first, ids_of_bag, /*training=*/false);
  }

 private:
  static constexpr int64_t kDim = 4, kBags = 3;

  Work Lookup(GroupPlan* plan, int64_t first, int64_t ids_of_bag, bool training) {
    ContractBatch batch;
    std::vector<OutputRows> outputs;
    for (size_t t = 0; t < tables_.size(); ++t) {
      std::vector<std::vector<int64_t>> bags(kBags, std::vector<int64_t>(ids_of_bag, first));
      for (int64_t b = 0; b < kBags; ++b) bags[b].back() += b;
      batch.push_back(SumOf(static_cast<int>(t), bags));
      outputs.push_back({rows_[t].data(), kDim});
    }
    const BatchArrays arrays(*engine_.memory, batch);
    return WorkOf([&] {
      return engine_.engine->Lookup(context(), {pointers_, arrays.specs(), arrays.inputs(), training}, plan,
                                    outputs, scratch_.get());
    });
  }

  EngineContext context() { return EngineContext{executor_, engine_.memory->stream(), call_memory_}; }

  const EngineCase engine_ = GpuCase();
  InlineExecutor executor_;
  // Reused from step to step, as ops reuse theirs.
  std::unique_ptr<GroupPlan> plan_ = engine_.engine->NewPlan();
  std::unique_ptr<EngineScratch> scratch_, backward_scratch_;
  StreamMemory* call_memory_;
  std::vector<std::shared_ptr<EngineTable>> tables_;
  std::vector<EngineTable*> pointers_;
  std::vector<EngineArray<float>> rows_;
};

// The words of the document, with single spaces.
std::string Document() {
  std::ifstream file("docs/performance-gpu.md");
  std::string words;
  std::string word;
  while (file >> word) words += word + " ";
  return words;
}

void ExpectInDocument(const std::string& text) {
  EXPECT_NE(Document().find(text), std::string::npos) << "docs/performance-gpu.md needs: " << text;
}

int64_t KernelsOf(const StepWork& step) { return step.lookup.kernels + step.backward.kernels; }

// The third step, whose ids all have rows.
StepWork StepWithKnownIds(Group* group, const std::string& optimizer) {
  for (int step = 0; step < 2; ++step) group->Step(optimizer);
  return group->Step(optimizer);
}

TEST(StepLaunchesTest, OfTwentySixTables) {
  Group group(26);
  const StepWork known = StepWithKnownIds(&group, "lazy_adam");
  ExpectInDocument(StrCat("is ", KernelsOf(known), " kernels: ", known.lookup.kernels, " for the lookup"));
  ExpectInDocument(StrCat("and ", known.backward.kernels, " for the backward pass"));
  ExpectInDocument(StrCat("which makes ", KernelsOf(known) + kKernelsOfSort - 1, " on a device"));
  ExpectInDocument(
      StrCat("There are ", known.lookup.transfers + known.backward.transfers, " copies and fills"));
  ExpectInDocument(StrCat(known.lookup.events + known.backward.events, " events"));
  ExpectInDocument("and one wait of the host, in the lookup");
  EXPECT_EQ(known.lookup.waits, 1);
  EXPECT_EQ(known.backward.waits, 0);

  // The minimum over some steps: in others, tables grow.
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t step = 1; step < 8; ++step)
    least = std::min(least, KernelsOf(group.Step("lazy_adam", 10 * step)));
  ExpectInDocument(StrCat("New ids take ", least - KernelsOf(known), " more"));

  Group with_history(26);
  const StepWork adam = StepWithKnownIds(&with_history, "adam");
  ExpectInDocument(StrCat("Adam takes ", adam.lookup.kernels - known.lookup.kernels, " more in the lookup"));
  ExpectInDocument(
      StrCat("and ", adam.backward.kernels - known.backward.kernels, " more in the backward pass"));
}

TEST(StepLaunchesTest, OfALookupThatOnlyReads) {
  Group group(26);
  StepWithKnownIds(&group, "lazy_adam");
  const Work known = group.Read();
  ExpectInDocument(StrCat("A lookup that only reads takes ", known.kernels, " kernels"));
  EXPECT_EQ(known.waits, 1);
  // Ids without rows cost nothing more, except for a kernel that can compute their initial values.
  EXPECT_EQ(group.Read(/*first=*/900).kernels, known.kernels);

  // Rows that lag behind are brought up to date, each once.
  Group with_history(26);
  const StepWork adam = StepWithKnownIds(&with_history, "adam");
  EXPECT_EQ(with_history.Read().kernels, adam.lookup.kernels);
}

TEST(StepLaunchesTest, OfTablesWithTiers) {
  Group group(26);
  Group with_tiers(26, nullptr, TierOptions{1, "", false});
  const StepWork known = StepWithKnownIds(&group, "lazy_adam");
  const StepWork tiered = StepWithKnownIds(&with_tiers, "lazy_adam");
  ExpectInDocument(
      StrCat("Tables with tiers take ", tiered.lookup.kernels - known.lookup.kernels, " more in the lookup"));
  EXPECT_EQ(tiered.lookup.transfers, known.lookup.transfers + 1);
  EXPECT_EQ(tiered.lookup.waits, 1);
  EXPECT_EQ(tiered.backward.kernels, known.backward.kernels);
  // They move rows in both kinds of lookups.
  EXPECT_EQ(with_tiers.Read().kernels, tiered.lookup.kernels);
  Group one(1, nullptr, TierOptions{1, "", false});
  const StepWork of_one = StepWithKnownIds(&one, "lazy_adam");
  Group plain(1);
  EXPECT_EQ(of_one.lookup.kernels - StepWithKnownIds(&plain, "lazy_adam").lookup.kernels,
            tiered.lookup.kernels - known.lookup.kernels);
}

// Memory as TensorFlow gives it.
class CountedMemory final : public StreamMemory {
 public:
  // Refuses allocations of more bytes.
  int64_t most_bytes = std::numeric_limits<int64_t>::max();
  int64_t refused = 0;
  int64_t in_use = 0;
  int64_t largest = 0;  // in bytes

  StatusOr<void*> Allocate(void* stream, int64_t bytes) override {
    if (bytes > most_bytes) {
      ++refused;
      return ResourceExhausted("no ", bytes, " bytes");
    }
    void* memory = nullptr;
    SOK_RETURN_IF_CUDA_ERROR(cudaMallocAsync(&memory, bytes, static_cast<cudaStream_t>(stream)), "full");
    ++in_use;
    largest = std::max(largest, bytes);
    return memory;
  }
  void Free(void* stream, void* memory) override {
    --in_use;
    EXPECT_EQ(cudaFreeAsync(memory, static_cast<cudaStream_t>(stream)), cudaSuccess);
  }
};

TEST(StepLaunchesTest, ACallTakesOneBlockOfMemory) {
  CountedMemory memory;
  Group group(26, &memory);
  const StepWork known = StepWithKnownIds(&group, "lazy_adam");
  EXPECT_EQ(known.lookup.allocations, 1);
  EXPECT_EQ(known.backward.allocations, 1);
  ExpectInDocument(StrCat(known.lookup.allocations + known.backward.allocations, " allocations from"));
  // A larger batch takes what does not fit by itself, the next one as large takes one block.
  EXPECT_GT(group.Step("lazy_adam", 0, 4 * kSegmentPiece).lookup.allocations, 1);
  EXPECT_EQ(group.Step("lazy_adam", 0, 4 * kSegmentPiece).lookup.allocations, 1);
  EXPECT_EQ(memory.in_use, 0);
}

TEST(StepLaunchesTest, WithoutMemoryForABlockACallTakesSmallPieces) {
  CountedMemory memory;
  Group group(4, &memory);
  StepWithKnownIds(&group, "lazy_adam");
  memory.largest = 0;
  group.Step("lazy_adam");
  memory.most_bytes = memory.largest - 1;
  const StepWork known = StepWithKnownIds(&group, "lazy_adam");
  EXPECT_GT(known.lookup.allocations + known.backward.allocations, 3);
  EXPECT_GE(memory.refused, 1);
  EXPECT_LE(memory.refused, 2) << "a call asks for a block that it did not get";
  EXPECT_EQ(memory.in_use, 0);
}

TEST(StepLaunchesTest, UpToTwentyTablesTakeAsManyAsOne) {
  Group one(1);
  Group twenty(20);
  const StepWork of_one = StepWithKnownIds(&one, "lazy_adam");
  const StepWork of_twenty = StepWithKnownIds(&twenty, "lazy_adam");
  EXPECT_EQ(of_twenty.lookup.kernels, of_one.lookup.kernels);
  EXPECT_EQ(of_twenty.backward.kernels, of_one.backward.kernels);
  EXPECT_EQ(of_twenty.lookup.transfers, of_one.lookup.transfers);
  EXPECT_EQ(of_twenty.lookup.events, of_one.lookup.events);
  EXPECT_EQ(of_twenty.backward.events, of_one.backward.events);
  ExpectInDocument(StrCat("up to 20 tables takes ", KernelsOf(of_one)));
}

TEST(StepLaunchesTest, OnlySizesAreCopiedToTheHost) {
  for (const char* const optimizer : {"lazy_adam", "adam"}) {
    Group group(3);
    int64_t of_lookup = 0;
    // Known ids and new ones.
    for (const int64_t first : {0, 0, 0, 50, 50}) {
      for (const int64_t ids_of_bag : {3, 700}) {
        const StepWork step = group.Step(optimizer, first, ids_of_bag);
        if (of_lookup == 0) of_lookup = step.lookup.bytes_to_host;
        EXPECT_EQ(step.lookup.bytes_to_host, of_lookup) << optimizer << ", " << first << ", " << ids_of_bag;
        EXPECT_EQ(step.backward.bytes_to_host, 0) << optimizer << ", " << first << ", " << ids_of_bag;
      }
    }
    EXPECT_GT(of_lookup, 0);
  }
}

}  // namespace
}  // namespace sok
