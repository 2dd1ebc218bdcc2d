#include "cc/cpu/group/group_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/cpu/group/testing/random_group.h"
#include "cc/lookup/testing/group_reference.h"

namespace sok {
namespace {

void ExpectClose(const std::vector<double>& expected, const float* actual, const std::string& where) {
  for (size_t d = 0; d < expected.size(); ++d) {
    ASSERT_NEAR(actual[d], expected[d], 2e-6 * std::max(1.0, std::abs(expected[d])) * 8)
        << where << ", column " << d;
  }
}

class GroupLookupTest : public ::testing::TestWithParam<int> {};

TEST_P(GroupLookupTest, ForwardEqualsReference) {
  for (int threads : {1, 2, 3, 4}) {
    ThreadPool executor(threads);
    Group group = RandomGroup(GetParam(), GetParam());
    ASSERT_TRUE(group.Forward(executor).ok());
    for (size_t l = 0; l < group.bags.size(); ++l) {
      const LookupBags& lookup = group.plan.lookups[l];
      const int64_t dim = group.tables[lookup.table]->options().dim;
      const ReferenceRows rows = group.Rows(lookup.table);
      for (size_t b = 0; b < group.bags[l].size(); ++b) {
        ExpectClose(ReferencePool(rows, group.bags[l][b], lookup.combiner, dim),
                    group.outputs[l].data() + b * dim,
                    "lookup " + std::to_string(l) + ", bag " + std::to_string(b));
      }
    }
  }
}

TEST_P(GroupLookupTest, BackwardEqualsReferenceForAnyNumberOfThreads) {
  std::vector<std::vector<float>> single;
  for (int threads : {1, 2, 3, 4}) {
    ThreadPool executor(threads);
    Group group = RandomGroup(GetParam(), GetParam());
    ASSERT_TRUE(group.Forward(executor).ok());
    std::mt19937 random(9);
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> gradients;
    std::vector<GradientRows> gradient_rows;
    for (const std::vector<float>& output : group.outputs) {
      gradients.emplace_back(output.size());
      for (float& g : gradients.back()) g = normal(random);
    }
    for (size_t l = 0; l < gradients.size(); ++l) {
      gradient_rows.push_back({gradients[l].data(), group.output_rows[l].stride});
    }
    std::vector<int64_t> dims;
    std::vector<std::vector<float>> all_grads;
    std::vector<float*> grads_out;
    for (int t = 0; t < 4; ++t) {
      dims.push_back(group.tables[t]->options().dim);
      all_grads.emplace_back(group.plan.parts[t].unique.size() * dims[t], std::nanf(""));
    }
    for (std::vector<float>& grads : all_grads) grads_out.push_back(grads.data());
    GradientScratch scratch;
    ASSERT_TRUE(GroupBackward(executor, group.plan, dims, gradient_rows, grads_out, &scratch).ok());
    for (int t = 0; t < 4; ++t) {
      const int64_t dim = dims[t];
      const TablePart& part = group.plan.parts[t];
      const std::vector<float>& grads = all_grads[t];
      ReferenceRows expected;
      for (size_t l = 0; l < group.bags.size(); ++l) {
        if (group.plan.lookups[l].table != t) continue;
        for (size_t b = 0; b < group.bags[l].size(); ++b) {
          const float* g = gradients[l].data() + b * dim;
          ReferenceBackward(group.bags[l][b], group.plan.lookups[l].combiner, std::vector<double>(g, g + dim),
                            &expected);
        }
      }
      ASSERT_EQ(expected.size(), part.unique.size()) << "every distinct id once";
      for (size_t u = 0; u < part.unique.size(); ++u) {
        ExpectClose(expected.at(part.unique[u]), grads.data() + u * dim,
                    "id " + std::to_string(part.unique[u]));
      }
      if (threads == 1) {
        single.push_back(grads);
      } else {
        EXPECT_EQ(grads, single[t]) << threads << " threads, bit for bit";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BatchSizes, GroupLookupTest, ::testing::Values(0, 1, 2, 7, 64, 300));

TEST(GroupPlanTest, OneIdInSeveralLookupsIsOneRow) {
  Group group;
  group.AddTable(2);
  group.AddLookup(0, {{{5, 6}, {1, 1}}}, Combiner::kSum, false);
  group.AddLookup(0, {{{6, 5, 6}, {1, 1, 1}}}, Combiner::kSum, false);
  InlineExecutor executor;
  ASSERT_TRUE(group.Forward(executor).ok());
  EXPECT_EQ(group.plan.parts[0].unique, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(group.tables[0]->size(), 2);
}

TEST(GroupPlanTest, WithoutTrainingNothingIsInsertedAndInitialRowsAreRead) {
  Group group;
  group.AddTable(3);
  group.AddLookup(0, {{{7, 8, 7}, {1, 1, 1}}}, Combiner::kSum, false);
  group.plan.training = false;
  InlineExecutor executor;
  ASSERT_TRUE(group.Forward(executor).ok());
  EXPECT_EQ(group.tables[0]->size(), 0);
  ExpectClose(ReferencePool(group.Rows(0), group.bags[0][0], Combiner::kSum, 3), group.outputs[0].data(),
              "bag 0");
  EXPECT_EQ(group.plan.parts[0].rows, (std::vector<int64_t>{Table::kAbsent, Table::kAbsent}));
}

TEST(GroupPlanTest, IdsThatAreNotAdmittedReadAsTheDefaultAndHaveNoGradient) {
  Group group;
  group.AddTable(2);
  TableOptions options = group.tables[0]->options();
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 2;
  options.admission.default_value = 0.5f;
  InlineExecutor executor;
  group.tables[0] = std::move(Table::Create(executor, options).value());
  group.AddLookup(0, {{{5, 6}, {1, 1}}, {{7, 6, 8}, {1, 1, 1}}}, Combiner::kSum, true);
  for (const bool training : {true, false}) {
    group.plan.training = training;
    ASSERT_TRUE(group.Forward(executor).ok());
    const TablePart& part = group.plan.parts[0];
    const ReferenceRows rows = group.Rows(0);
    ExpectClose({rows.at(6)[0] + 0.5, rows.at(6)[1] + 0.5}, group.outputs[0].data(), "bag 0");
    ExpectClose({rows.at(6)[0] + 1.0, rows.at(6)[1] + 1.0}, group.outputs[0].data() + 2, "bag 1");
    EXPECT_EQ(part.trained, training ? 1 : 0);
    if (!training) continue;
    EXPECT_EQ(part.unique, (std::vector<int64_t>{6, 5, 7, 8})) << "ids with rows come first";
    EXPECT_EQ(part.rows, (std::vector<int64_t>{0, Table::kAbsent, Table::kAbsent, Table::kAbsent}));
    EXPECT_EQ(part.inverse, (std::vector<int32_t>{1, 0, 2, 0, 3}));
    const std::vector<float> gradient = {1, 10, 100, 1000};
    std::vector<float> grads(3, -1.0f);
    float* const grads_out = grads.data();
    const std::vector<int64_t> dims = {2};
    const GradientRows gradient_rows = {gradient.data(), 2};
    GradientScratch scratch;
    ASSERT_TRUE(
        GroupBackward(executor, group.plan, dims, {&gradient_rows, 1}, {&grads_out, 1}, &scratch).ok());
    EXPECT_EQ(grads, (std::vector<float>{101, 1010, -1})) << "one row";
    std::vector<float> weight_grads(5);
    ASSERT_TRUE(WeightBackward(executor, group.tables[0].get(), group.plan, 0, gradient_rows,
                               Span<float>(weight_grads))
                    .ok());
    EXPECT_NEAR(weight_grads[0], 5.5, 1e-5);
  }
  EXPECT_EQ(group.tables[0]->waiting()->size(), 3) << "reading counts nothing";
}

TEST(GroupPlanTest, AnIdReadsWhatItWasBeforeTheLookupThatAdmitsIt) {
  Group group;
  group.AddTable(2);
  TableOptions options = group.tables[0]->options();
  options.admission = {Admission::Kind::kCounter, 2, 0.5f, /*before_lookup=*/true};
  InlineExecutor executor;
  group.tables[0] = std::move(Table::Create(executor, options).value());
  group.AddLookup(0, {{{6}, {1}}, {{6}, {1}}, {{5}, {1}}, {{5}, {1}}}, Combiner::kSum, false);
  const std::vector<double> otherwise = {0.5, 0.5};
  ASSERT_TRUE(group.Forward(executor).ok());
  for (int bag = 0; bag < 4; ++bag) ExpectClose(otherwise, group.outputs[0].data() + 2 * bag, "the default");
  // One id that goes on waiting, one that is admitted, and one with a row.
  group.ids[0] = {9, 7, 7, 6};
  ASSERT_TRUE(group.Forward(executor).ok());
  EXPECT_EQ(group.plan.parts[0].unique, (std::vector<int64_t>{7, 6, 9})) << "ids with rows come first";
  ExpectClose(otherwise, group.outputs[0].data(), "the one that waits");
  ExpectClose(otherwise, group.outputs[0].data() + 2, "the one that is admitted");
  ExpectClose(otherwise, group.outputs[0].data() + 4, "the one that is admitted");
  std::vector<float> row(2);
  group.tables[0]->InitialRow(6, Span<float>(row));
  ExpectClose({row[0], row[1]}, group.outputs[0].data() + 6, "the one with a row");
}

TEST(GroupPlanTest, WeightGradientsOfAnEvictedRowAreAnError) {
  Group group;
  group.AddTable(2);
  group.AddLookup(0, {{{5, 6}, {1, 1}}}, Combiner::kSum, true);
  InlineExecutor executor;
  ASSERT_TRUE(group.Forward(executor).ok());
  int64_t erased;
  const std::vector<int64_t> keys = {6};
  ASSERT_TRUE(group.tables[0]->Erase({executor}, keys, &erased).ok());
  const std::vector<float> gradient = {1, 10};
  std::vector<float> weight_grads(2);
  const Status status = WeightBackward(executor, group.tables[0].get(), group.plan, 0, {gradient.data(), 2},
                                       Span<float>(weight_grads));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("'table0'"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("key 6"), std::string::npos) << status.message();
}

TEST(GroupPlanTest, TheErrorNamesAFullTable) {
  Group group;
  group.AddTable(1);
  group.AddTable(1, 2);
  group.AddLookup(0, {{{1}, {1}}}, Combiner::kSum, false);
  group.AddLookup(1, {{{1, 2, 3}, {1, 1, 1}}}, Combiner::kSum, false);
  for (int threads : {1, 2}) {
    ThreadPool executor(threads);
    const Status status = group.Forward(executor);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("'table1'"), std::string::npos) << status.message();
  }
}

TEST(GroupPlanTest, GroupsThatShareTablesInOppositeOrderDoNotDeadlock) {
  Group forward;
  forward.AddTable(2);
  forward.AddTable(3);
  ThreadPool threads(2);
  threads.ParallelFor(2, 1 << 30, [&](int64_t begin, int64_t end) {
    for (int64_t side = begin; side < end; ++side) {
      for (int round = 0; round < 300; ++round) {
        std::vector<Table*> tables = forward.table_pointers();
        if (side == 1) std::reverse(tables.begin(), tables.end());
        LookupPlan plan;
        const int64_t id = round;
        const std::vector<Span<const int64_t>> ids(2, Span<const int64_t>(&id, 1));
        std::vector<std::vector<float>> outputs(2);
        std::vector<OutputRows> output_rows;
        for (int t = 0; t < 2; ++t) {
          LookupBags lookup;
          lookup.table = t;
          lookup.count = 1;
          plan.lookups.push_back(lookup);
          outputs[t].resize(3);
          output_rows.push_back({outputs[t].data(), tables[t]->options().dim});
        }
        InlineExecutor executor;
        GroupScratch scratch;
        EXPECT_TRUE(GroupForward(executor, tables, ids, &plan, output_rows, &scratch).ok());
      }
    }
  });
  EXPECT_EQ(forward.tables[0]->size(), 300);
  EXPECT_EQ(forward.tables[1]->size(), 300);
}

TEST(GroupPlanTest, WeightGradientsFollowTheCallersOrder) {
  Group group;
  group.AddTable(2);
  group.AddLookup(0, {{{5, 6}, {0.5, 2.0}}, {{7}, {1.5}}}, Combiner::kSum, true);
  group.plan.lookups[0].order = {2, 0, 1};  // the caller's ids were 6, 7, 5
  InlineExecutor executor;
  ASSERT_TRUE(group.Forward(executor).ok());
  const std::vector<float> gradient = {1, 10, 100, 1000};
  std::vector<float> weight_grads(3);
  const auto backward = [&](Table* table) {
    return WeightBackward(executor, table, group.plan, 0, {gradient.data(), 2}, Span<float>(weight_grads));
  };
  ASSERT_TRUE(backward(group.tables[0].get()).ok());
  const ReferenceRows rows = group.Rows(0);
  EXPECT_NEAR(weight_grads[2], rows.at(5)[0] + 10 * rows.at(5)[1], 1e-4);
  EXPECT_NEAR(weight_grads[0], rows.at(6)[0] + 10 * rows.at(6)[1], 1e-4);
  EXPECT_NEAR(weight_grads[1], 100 * rows.at(7)[0] + 1000 * rows.at(7)[1], 1e-3);
  // A table without the plan's rows, such as one that replaced the table since the lookup.
  EXPECT_EQ(backward(MakeTable("table0", 2).get()).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sok
