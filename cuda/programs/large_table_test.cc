// Tables and outputs of more than 2^31 bytes and 2^31 floats. The size comes from the device's free memory,
// at most twice 2^31 floats. Left out: more than 2^31 rows, whose index, keys and shortest records alone take
// 100 GB, and more than 2^31 - 1 ids in a lookup, which is an error (BagsLimitsTest, DedupLimitsTest).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/hash.h"
#include "cc/initializers/initializer.h"
#include "cuda/base/allocators.h"
#include "cuda/base/device_buffer.h"
#include "cuda/engine/testing/twin_groups.h"
#include "cuda/programs/testing/test_size.h"

namespace sok {
namespace {

constexpr int64_t kDim = 128;
constexpr int64_t kFloats = int64_t{1} << 31;

int64_t KeyOf(int64_t i) { return static_cast<int64_t>(Mix64(static_cast<uint64_t>(i))); }

// The number of rows of a table with `floats_of_row` floats per row: more than 2^31 bytes, or more than 2^31
// floats if they fit into `share` of the memory.
int64_t RowsFor(int64_t floats_of_row, double share) {
  const auto fitting =
      static_cast<int64_t>(share * static_cast<double>(free_bytes_of_tests)) / (4 * floats_of_row + 64);
  const int64_t beyond =
      BySize<int64_t>(200, kFloats / 4 / floats_of_row + 1000, kFloats / floats_of_row + 1000);
  return std::min(beyond, fitting);
}

// One table on the device, and calls with arrays there.
class LargeTable {
 public:
  explicit LargeTable(const TableOptions& options) : engine_case_(GpuCase()), dim_(options.dim) {
    auto made = engine().MakeTable(context(), options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    table_ = std::move(made.value());
    plan_ = engine().NewPlan();
    scratch_ = engine().NewScratch();
  }

  // Looks up keys [first, first + n) of KeyOf; the output stays on the device.
  void Lookup(int64_t first, int64_t n, bool training) {
    std::vector<int64_t> keys(n);
    for (int64_t i = 0; i < n; ++i) keys[i] = KeyOf(first + i);
    const EngineArray<int64_t> device_keys(*engine_case_.memory, keys);
    if (output_.size() < n * dim_) {
      output_.Free();
      auto made = DeviceBuffer<float>::Allocate(&allocator_, stream(), n * dim_);
      ASSERT_TRUE(made.ok()) << made.status().message();
      output_ = std::move(made.value());
    }
    LookupSpec spec;
    spec.layout = IdLayout::kDense;
    LookupInput input;
    input.ids = device_keys.data();
    input.num_ids = n;
    EngineTable* const table = table_.get();
    const OutputRows rows = {output_.data(), dim_};
    const GroupBatch batch = {Span<EngineTable* const>(&table, 1), Span<const LookupSpec>(&spec, 1),
                              Span<const LookupInput>(&input, 1), training};
    const Status status =
        engine().Lookup(context(), batch, plan_.get(), Span<const OutputRows>(&rows, 1), scratch_.get());
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  }

  // A step on the rows of the last lookup, whose output becomes the gradient: `byte` in all bytes.
  void Train(const std::string& optimizer, const std::vector<float>& hyper, int byte) {
    ASSERT_EQ(cudaMemsetAsync(output_.data(), byte, static_cast<size_t>(output_.bytes()), stream()),
              cudaSuccess);
    const GradientRows gradient = {output_.data(), dim_};
    const EngineStep step = {0, table_.get(), Span<const float>(hyper)};
    const Status status = engine().Train(context(), *plan_, Span<const GradientRows>(&gradient, 1), optimizer,
                                         Span<const EngineStep>(&step, 1), scratch_.get());
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  }

  // Row `i` of the output of the last lookup.
  std::vector<float> Output(int64_t i) {
    std::vector<float> row(static_cast<size_t>(dim_));
    engine_case_.memory->CopyOut(row.data(), output_.data() + i * dim_,
                                 dim_ * static_cast<int64_t>(sizeof(float)));
    return row;
  }

  TableDescription Describe() const { return table_->Describe(); }

 private:
  Engine& engine() { return *engine_case_.engine; }
  cudaStream_t stream() { return static_cast<cudaStream_t>(engine_case_.memory->stream()); }
  EngineContext context() { return EngineContext{executor_, stream()}; }

  const EngineCase engine_case_;
  const int64_t dim_;
  InlineExecutor executor_;
  AsyncAllocator allocator_;
  std::shared_ptr<EngineTable> table_;
  std::unique_ptr<GroupPlan> plan_;
  std::unique_ptr<EngineScratch> scratch_;
  DeviceBuffer<float> output_;
};

// Numbers in [0, n): the first and the last, neighbours of powers of two, neighbours of the rows at which the
// float offset passes a power of two, and some at random.
std::vector<int64_t> SampleOf(int64_t n, int64_t floats_of_row) {
  std::vector<int64_t> sample = {0, n - 1};
  for (int64_t power = 1; power <= (kFloats << 3); power *= 2) {
    for (const int64_t at : {power, power / floats_of_row, power / 4 / floats_of_row}) {
      for (int64_t i = at - 1; i <= at + 1; ++i) {
        if (i >= 0 && i < n) sample.push_back(i);
      }
    }
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < BySize(3, 300, 300); ++i) sample.push_back(static_cast<int64_t>(random() % n));
  std::sort(sample.begin(), sample.end());
  sample.erase(std::unique(sample.begin(), sample.end()), sample.end());
  return sample;
}

std::vector<float> InitialRow(const TableOptions& options, int64_t key) {
  std::vector<float> row(static_cast<size_t>(options.dim));
  FillRow(options.initializer, key, Span<float>(row));
  return row;
}

class LargeTableTest : public testing::Test {
 protected:
  // Looks up the keys [0, n) in pieces, and expects rows of these options in a sample of the outputs.
  static void InsertAndCheck(LargeTable* table, const TableOptions& options, int64_t n, int64_t floats_of_row,
                             bool training) {
    const int64_t piece = BySize<int64_t>(90, 1 << 20, 1 << 20);
    const std::vector<int64_t> sample = SampleOf(n, floats_of_row);
    for (int64_t first = 0; first < n; first += piece) {
      const int64_t count = std::min(piece, n - first);
      ASSERT_NO_FATAL_FAILURE(table->Lookup(first, count, training));
      for (const int64_t i : sample) {
        if (i < first || i >= first + count) continue;
        ASSERT_EQ(table->Output(i - first), InitialRow(options, KeyOf(i))) << "key number " << i;
      }
    }
  }
};

// Rows without slots, all read and trained in one call whose outputs and gradients have as many floats as the
// table.
TEST_F(LargeTableTest, OneLookupAndStepOfAllRows) {
  const TableOptions options = ContractOptions("large", kDim);
  const int64_t n = RowsFor(kDim, 0.4);
  LargeTable table(options);
  ASSERT_NO_FATAL_FAILURE(InsertAndCheck(&table, options, n, kDim, /*training=*/true));
  ASSERT_EQ(table.Describe().rows, n);

  const std::vector<int64_t> sample = SampleOf(n, kDim);
  ASSERT_NO_FATAL_FAILURE(table.Lookup(0, n, /*training=*/true));
  ASSERT_EQ(table.Describe().rows, n);
  for (const int64_t i : sample) {
    ASSERT_EQ(table.Output(i), InitialRow(options, KeyOf(i))) << "key number " << i;
  }
  // A float of the bytes 0x3c3c3c3c.
  constexpr float kGradient = 0x1.787878p-7f;
  constexpr float kRate = 0.5f;
  ASSERT_NO_FATAL_FAILURE(table.Train("sgd", {kRate}, 0x3c));
  ASSERT_NO_FATAL_FAILURE(table.Lookup(0, n, /*training=*/false));
  for (const int64_t i : sample) {
    std::vector<float> expected = InitialRow(options, KeyOf(i));
    for (float& w : expected) w -= kRate * kGradient;
    ASSERT_EQ(table.Output(i), expected) << "key number " << i;
  }
}

// Records with slots, which take more memory. A sample of them is trained, and compared with a CPU table that
// holds only the sample.
TEST_F(LargeTableTest, RecordsWithSlotsAtTheEndOfALargeTable) {
  const TableOptions options = ContractOptions("large", kDim);
  const int64_t floats_of_row = 3 * kDim;
  const int64_t n = RowsFor(floats_of_row, 0.7);
  const std::vector<float> hyper = SampleHyperOf("lazy_adam");
  LargeTable table(options);
  // The optimizer comes first, because adding its slots copies all rows.
  ASSERT_NO_FATAL_FAILURE(table.Lookup(0, 1, /*training=*/true));
  ASSERT_NO_FATAL_FAILURE(table.Train("lazy_adam", hyper, 0));
  const std::vector<float> after_first = [&] {
    table.Lookup(0, 1, /*training=*/false);
    return table.Output(0);
  }();
  const int64_t piece = BySize<int64_t>(90, 1 << 20, 1 << 20);
  for (int64_t first = 1; first < n; first += piece) {
    ASSERT_NO_FATAL_FAILURE(table.Lookup(first, std::min(piece, n - first), /*training=*/true));
  }
  ASSERT_EQ(table.Describe().rows, n);

  InlineExecutor executor;
  const EngineCase cpu = CpuCase();
  for (const int64_t i : SampleOf(n, floats_of_row)) {
    ContractGroup twin(cpu, executor, {options});
    if (i == 0) continue;  // it was trained before
    ContractLookup lookup;
    lookup.spec.layout = IdLayout::kDense;
    lookup.bags = {{{KeyOf(i)}, {1.0}}};
    ASSERT_TRUE(twin.Lookup({lookup}).ok());
    ASSERT_NO_FATAL_FAILURE(table.Lookup(i, 1, /*training=*/true));
    ASSERT_EQ(table.Output(0), twin.outputs()[0]) << "key number " << i;
    ASSERT_NO_FATAL_FAILURE(table.Train("lazy_adam", hyper, 0x3c));
    ASSERT_TRUE(twin.Train({std::vector<float>(kDim, 0x1.787878p-7f)}, "lazy_adam", hyper).ok());
    ASSERT_TRUE(twin.Lookup({lookup}, /*training=*/false).ok());
    ASSERT_NO_FATAL_FAILURE(table.Lookup(i, 1, /*training=*/false));
    ASSERT_EQ(table.Output(0), twin.outputs()[0]) << "key number " << i << " after a step";
  }
  ASSERT_NO_FATAL_FAILURE(table.Lookup(0, 1, /*training=*/false));
  EXPECT_EQ(table.Output(0), after_first) << "the row that was not trained again";
}

}  // namespace
}  // namespace sok
