// The same calls leave the same bits behind in tables of both engines: outputs, rows, row numbers,
// references, gradients and numbers of rows.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/base/transfers.h"
#include "cuda/engine/testing/twin_groups.h"

namespace sok {
namespace {

class GpuEqualsCpuTest : public TwinGroupsTest {};

TEST_F(GpuEqualsCpuTest, StepsOfTablesOfAllKinds) {
  const std::vector<int64_t> dims = {16, 3, 1, 65};
  for (const std::string optimizer : {"adagrad", "adam"}) {
    SCOPED_TRACE(optimizer);
    Make(TablesOfAllKinds());
    const std::vector<float> hyper = SampleHyperOf(optimizer);
    for (uint32_t step = 0; step < 6; ++step) {
      SCOPED_TRACE(step);
      const ContractBatch batch = RandomBatch(step, 12, dims);
      ASSERT_NO_FATAL_FAILURE(Lookup(batch, /*training=*/true));
      ASSERT_NO_FATAL_FAILURE(Train(gpu_->RandomGradients(batch, step), optimizer, hyper, step % 2 == 1));
      ASSERT_NO_FATAL_FAILURE(Lookup(RandomBatch(step + 50, 5, dims), /*training=*/false));
      ASSERT_NO_FATAL_FAILURE(Erase(step % 4, {0, -1, 5, INT64_MAX, 12, static_cast<int64_t>(step)}));
      ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
    }
  }
}

TEST_F(GpuEqualsCpuTest, LookupsThatDoNotFit) {
  TableOptions small = ContractOptions("small", 2, /*capacity=*/3);
  TableOptions evicting = ContractOptions("evicting", 2, /*capacity=*/3);
  evicting.on_full = OnFull::kEvictLru;
  for (const TableOptions& options : {small, evicting}) {
    Make({options});
    ASSERT_NO_FATAL_FAILURE(Lookup({SumOf(0, {{1, 2}})}, true));
    ASSERT_NO_FATAL_FAILURE(Lookup({SumOf(0, {{3, 4}})}, true));
    ASSERT_NO_FATAL_FAILURE(Lookup({SumOf(0, {{3, 4, 5, 6}})}, true));
    ASSERT_NO_FATAL_FAILURE(Lookup({SumOf(0, {{3, 2, 5}})}, true));
    ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
  }
}

TEST_F(GpuEqualsCpuTest, ALookupWaitsForTheDeviceOnce) {
  Make({ContractOptions("table", 4), ContractOptions("other", 4)});
  const ContractBatch batch = {SumOf(0, {{1, 2}, {3}}), SumOf(1, {{4}, {4, 5}})};
  for (const bool training : {true, false}) {
    const int64_t before = RoundTrip::count();
    ASSERT_TRUE(gpu_->Lookup(batch, training).ok());
    EXPECT_EQ(RoundTrip::count() - before, 1);
  }
  ASSERT_TRUE(gpu_->Lookup(batch).ok());
  const OutputValues gradients = gpu_->RandomGradients(batch, 1);
  const int64_t before = RoundTrip::count();
  ASSERT_TRUE(gpu_->Train(gradients, "sgd", {0.5f}).ok());
  EXPECT_EQ(RoundTrip::count() - before, 0) << "a fused step waits for nothing";
}

TEST_F(GpuEqualsCpuTest, IdsThatAreOutOfOrderCostAnotherRoundTripOnce) {
  Make({ContractOptions("table", 4)});
  ContractBatch batch = {SumOf(0, {{1, 2, 3}, {4, 5}, {6}})};
  batch[0].shuffle_seed = 3;
  int64_t before = RoundTrip::count();
  ASSERT_NO_FATAL_FAILURE(Lookup(batch, true));
  EXPECT_EQ(RoundTrip::count() - before, 2);
  before = RoundTrip::count();
  ASSERT_NO_FATAL_FAILURE(Lookup(batch, true));
  EXPECT_EQ(RoundTrip::count() - before, 1) << "the plan remembers it";
}

}  // namespace
}  // namespace sok
