#include "cc/cpu/group/group_training.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/cpu/group/testing/random_group.h"
#include "cc/optimizers/testing/rule_cases.h"

namespace sok {
namespace {

const RuleCase kSgd = {"sgd", {0.1f}};
const RuleCase kAdagrad = {"adagrad", {0.1f, 0.1f, 1e-7f}};

// The gradients of a group's outputs.
struct OutputGradients {
  std::vector<std::vector<float>> values;
  std::vector<GradientRows> rows;

  OutputGradients(const Group& group, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (const std::vector<float>& output : group.outputs) {
      values.emplace_back(output.size());
      for (float& g : values.back()) g = normal(random);
    }
    for (size_t l = 0; l < values.size(); ++l)
      rows.push_back({values[l].data(), group.output_rows[l].stride});
  }
};

std::vector<EngineStep> AllSteps(const Group& group, const std::vector<float>& hyper) {
  std::vector<EngineStep> steps;
  for (size_t t = 0; t < group.tables.size(); ++t) {
    steps.push_back({static_cast<int>(t), group.tables[t].get(), Span<const float>(hyper)});
  }
  return steps;
}

// Trains in two passes: first stores all sums in memory, then takes each table's step.
Status TrainInTwoPasses(const Group& group, Span<const GradientRows> gradients, const RuleCase& optimizer) {
  InlineExecutor executor;
  std::vector<int64_t> dims;
  std::vector<std::vector<float>> grads;
  std::vector<float*> grads_out;
  for (size_t t = 0; t < group.tables.size(); ++t) {
    dims.push_back(group.tables[t]->options().dim);
    grads.emplace_back(group.plan.parts[t].trained * dims[t] + 1);
  }
  for (std::vector<float>& of_table : grads) grads_out.push_back(of_table.data());
  GradientScratch scratch;
  SOK_RETURN_IF_ERROR(GroupBackward(executor, group.plan, dims, gradients, grads_out, &scratch));
  for (size_t t = 0; t < group.tables.size(); ++t) {
    const TablePart& part = group.plan.parts[t];
    SOK_RETURN_IF_ERROR(group.tables[t]->ApplyGradients(
        {executor}, optimizer.name, optimizer.hyper, Span<const int64_t>(part.rows).subspan(0, part.trained),
        grads_out[t], true));
  }
  return OkStatus();
}

// Weights and slots of all rows, brought up to date.
std::vector<float> Records(const Group& group) {
  InlineExecutor executor;
  std::vector<float> records;
  for (const auto& table : group.tables) {
    const std::vector<int64_t> rows = table->Rows();
    table->BringUpToDate(executor, rows);
    for (const int64_t row : rows) {
      const float* record = table->weights(row);
      records.insert(records.end(), record, record + table->options().dim + table->slot_width());
    }
  }
  return records;
}

class GroupTrainingTest : public ::testing::TestWithParam<int> {};

TEST_P(GroupTrainingTest, EqualsTwoPassesBitForBit) {
  for (const RuleCase& optimizer : OneCasePerRule()) {
    for (const int threads : {1, 2, 3, 4}) {
      ThreadPool executor(threads, /*min_block_ns=*/1);
      Group one = RandomGroup(GetParam(), GetParam());
      Group two = RandomGroup(GetParam(), GetParam());
      GradientScratch scratch;
      for (uint32_t step = 0; step < 3; ++step) {
        ASSERT_TRUE(one.Forward(executor).ok());
        ASSERT_TRUE(two.Forward(executor).ok());
        const OutputGradients gradients(one, step);
        const Status status = GroupTrain(executor, one.plan, gradients.rows, optimizer.name,
                                         AllSteps(one, optimizer.hyper), &scratch);
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_TRUE(TrainInTwoPasses(two, gradients.rows, optimizer).ok());
      }
      EXPECT_EQ(Records(one), Records(two)) << optimizer.name << ", " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Batches, GroupTrainingTest, ::testing::Values(0, 1, 3, 50, 333));

// One lookup in one table, so that threads share its rows. One id has nearly all occurrences.
Group SkewedGroup(int64_t dim) {
  Group group;
  group.AddTable(dim);
  std::vector<ReferenceBag> bags(60);
  for (size_t b = 0; b < bags.size(); ++b) {
    bags[b].ids.assign(200, 7);
    bags[b].ids.push_back(static_cast<int64_t>(b % 20));
    bags[b].weights.assign(bags[b].ids.size(), 1.0);
  }
  group.AddLookup(0, bags, Combiner::kMean, false);
  return group;
}

TEST(GroupTrainingOfOneTableTest, FrequentIdsAndLongRowsEqualTwoPasses) {
  for (const int64_t dim :
       {int64_t{17}, int64_t{64}, RowGradients::kBlockFloats, RowGradients::kBlockFloats + 1}) {
    for (const int threads : {1, 3}) {
      ThreadPool executor(threads, /*min_block_ns=*/1);
      Group one = SkewedGroup(dim);
      Group two = SkewedGroup(dim);
      ASSERT_TRUE(one.Forward(executor).ok());
      ASSERT_TRUE(two.Forward(executor).ok());
      const OutputGradients gradients(one, 5);
      GradientScratch scratch;
      ASSERT_TRUE(
          GroupTrain(executor, one.plan, gradients.rows, "adagrad", AllSteps(one, kAdagrad.hyper), &scratch)
              .ok());
      ASSERT_TRUE(TrainInTwoPasses(two, gradients.rows, kAdagrad).ok());
      EXPECT_EQ(Records(one), Records(two)) << "dim " << dim << ", " << threads << " threads";
    }
  }
}

TEST(GroupTrainingOfOneTableTest, RowsErasedSinceTheLookupAreNotTrained) {
  InlineExecutor executor;
  Group group;
  group.AddTable(2);
  group.AddLookup(0, {{{5, 6, 7}, {1, 1, 1}}}, Combiner::kSum, false);
  ASSERT_TRUE(group.Forward(executor).ok());
  Table& table = *group.tables[0];
  int64_t erased = 0;
  const std::vector<int64_t> gone = {6};
  ASSERT_TRUE(table.Erase({executor}, gone, &erased).ok());
  // Another id gets the freed row.
  const std::vector<int64_t> other = {60};
  std::vector<int64_t> row(1);
  ASSERT_TRUE(table.FindOrMake(executor, other, Span<int64_t>(row)).ok());
  const std::vector<float> before(table.weights(row[0]), table.weights(row[0]) + 2);

  const std::vector<float> gradient = {1.0f, 2.0f};
  const GradientRows gradients = {gradient.data(), 2};
  GradientScratch scratch;
  const Status status =
      GroupTrain(executor, group.plan, {&gradients, 1}, "sgd", AllSteps(group, {0.5f}), &scratch);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(std::vector<float>(table.weights(row[0]), table.weights(row[0]) + 2), before);
  std::vector<float> expected(2);
  table.InitialRow(7, Span<float>(expected));
  EXPECT_FLOAT_EQ(table.weights(group.plan.parts[0].rows[2])[1], expected[1] - 0.5f * 2.0f);
}

TEST(GroupTrainingErrorsTest, AnErrorOfOneTableChangesNoTable) {
  InlineExecutor executor;
  Group group = RandomGroup(3, 20);
  ASSERT_TRUE(group.Forward(executor).ok());
  // The last table has another optimizer.
  ASSERT_TRUE(
      group.tables[3]->ApplyGradients({executor}, "sgd", kSgd.hyper, {}, nullptr, /*distinct=*/true).ok());
  const std::vector<float> before = Records(group);
  const OutputGradients gradients(group, 1);
  GradientScratch scratch;
  const Status status =
      GroupTrain(executor, group.plan, gradients.rows, "adagrad", AllSteps(group, kAdagrad.hyper), &scratch);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("'table3'"), std::string::npos) << status.message();
  EXPECT_EQ(Records(group), before);
  EXPECT_EQ(group.tables[0]->optimizer(), nullptr);

  const Status bad_rate = GroupTrain(executor, group.plan, gradients.rows, "adagrad",
                                     AllSteps(group, {std::nanf(""), 0.1f, 0.0f}), &scratch);
  EXPECT_EQ(bad_rate.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Records(group), before);
}

}  // namespace
}  // namespace sok
