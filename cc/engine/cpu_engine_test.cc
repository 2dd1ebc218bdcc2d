#include "cc/engine/cpu_engine.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/registry.h"
#include "cc/sharded/in_process_ranks.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

constexpr int64_t kDim = 2;

TableOptions Options(int rank = 0, int ranks = 1) {
  TableOptions options;
  options.name = "clicks";
  options.dim = kDim;
  options.rank = rank;
  options.ranks = ranks;
  options.initializer = {InitializerKind::kUniform, -1.0f, 1.0f, 7};
  return options;
}

// Two bags, {5, 6} and {5}, whose ids come unsorted, with weights.
struct SparseLookup {
  std::vector<int64_t> ids = {5, 6, 5};
  std::vector<int64_t> indices = {1, 0, 0, 0, 0, 1};
  std::vector<float> weights = {2.0f, 3.0f, 4.0f};
  LookupSpec spec;
  LookupInput input;

  SparseLookup() {
    spec.layout = IdLayout::kSparse;
    spec.weighted = true;
    input.ids = ids.data();
    input.num_ids = 3;
    input.num_bags = 2;
    input.indices = indices.data();
    input.weights = weights.data();
  }
};

class CpuEngineTest : public testing::Test {
 protected:
  CpuEngineTest() : engine_(*FindEngine("cpu").value()) {}

  std::shared_ptr<EngineTable> MakeTable(const TableOptions& options = Options()) {
    return engine_.MakeTable(context_, options).value();
  }

  // The row of a key, read by a lookup of that key alone.
  std::vector<float> RowOf(EngineTable* table, int64_t key) {
    const LookupSpec spec;
    LookupInput input;
    input.ids = &key;
    input.num_ids = 1;
    EngineTable* const tables[] = {table};
    std::vector<float> row(kDim);
    const OutputRows output{row.data(), kDim};
    const std::unique_ptr<GroupPlan> plan = engine_.NewPlan();
    const Status status = engine_.Lookup(context_, {{tables, 1}, {&spec, 1}, {&input, 1}, false}, plan.get(),
                                         {&output, 1}, engine_.NewScratch().get());
    EXPECT_TRUE(status.ok()) << status.message();
    return row;
  }

  InlineExecutor executor_;
  const EngineContext context_{executor_};
  Engine& engine_;
};

TEST_F(CpuEngineTest, MakesTablesOfValidOptionsOnly) {
  EXPECT_EQ(&MakeTable()->engine(), &engine_);
  TableOptions options = Options();
  options.dim = 0;
  const StatusOr<std::shared_ptr<EngineTable>> made = engine_.MakeTable(context_, options);
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(made.status().message().find("clicks"), std::string::npos);
}

TEST_F(CpuEngineTest, DescribesATable) {
  const std::shared_ptr<EngineTable> table = MakeTable();
  EXPECT_EQ(table->Describe().rows, 0);
  EXPECT_EQ(table->Describe().optimizer, "");
  const std::vector<int64_t> keys = {3, 1};
  const std::vector<float> values = {1, 2, 3, 4};
  ASSERT_TRUE(table->Assign(context_, keys, values.data()).ok());
  const float rate = 0.5f;
  ASSERT_TRUE(table->ApplyGradients(context_, "sgd", {&rate, 1}, {}, nullptr, true).ok());
  const TableDescription description = table->Describe();
  EXPECT_EQ(description.rows, 2);
  EXPECT_EQ(description.steps, 1);
  EXPECT_EQ(description.optimizer, "sgd");
  EXPECT_GT(description.bytes, 0);
  ASSERT_TRUE(table->SetGlobalStep(10).ok());
  ASSERT_TRUE(table->ApplyGradients(context_, "sgd", {&rate, 1}, {}, nullptr, true).ok());
  EXPECT_EQ(table->Describe().steps, 10);
}

TEST_F(CpuEngineTest, AssignRefusesAKeyThatStandsTwiceAndChangesNothing) {
  const std::shared_ptr<EngineTable> table = MakeTable();
  const std::vector<int64_t> keys = {3, 1, 3};
  const std::vector<float> values(6, 1.0f);
  const Status status = table->Assign(context_, keys, values.data());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "Embedding variable 'clicks': key 3 stands twice among the keys to set");
  EXPECT_EQ(table->Describe().rows, 0);
}

TEST_F(CpuEngineTest, EraseTakesKeysOut) {
  const std::shared_ptr<EngineTable> table = MakeTable();
  const std::vector<int64_t> keys = {3, 1};
  const std::vector<float> values(4, 1.0f);
  ASSERT_TRUE(table->Assign(context_, keys, values.data()).ok());
  const std::vector<int64_t> gone = {1, 8};
  int64_t erased = -1;
  ASSERT_TRUE(table->Erase(context_, gone, &erased).ok());
  EXPECT_EQ(erased, 1);
  EXPECT_EQ(table->Describe().rows, 1);
}

TEST_F(CpuEngineTest, AGroupIsLookedUpAndTrained) {
  const std::shared_ptr<EngineTable> table = MakeTable();
  EngineTable* const tables[] = {table.get()};
  const std::vector<int64_t> keys = {5, 6};
  const std::vector<float> values = {1, 2, 10, 20};
  ASSERT_TRUE(table->Assign(context_, keys, values.data()).ok());
  const SparseLookup lookup;
  const GroupBatch batch{{tables, 1}, {&lookup.spec, 1}, {&lookup.input, 1}, true};
  const std::unique_ptr<EngineScratch> scratch = engine_.NewScratch();
  std::vector<float> outputs(4);
  const OutputRows output{outputs.data(), kDim};
  const std::unique_ptr<GroupPlan> plan = engine_.NewPlan();
  ASSERT_TRUE(engine_.Lookup(context_, batch, plan.get(), {&output, 1}, scratch.get()).ok());
  EXPECT_EQ(outputs, (std::vector<float>{34, 68, 2, 4}));  // bag 0: 3 * row of 6 + 4 * row of 5

  // The same a step ahead.
  const std::unique_ptr<GroupPlan> ahead = engine_.NewPlan();
  std::vector<float> outputs_ahead(4);
  const OutputRows output_ahead{outputs_ahead.data(), kDim};
  ASSERT_TRUE(engine_.Merge(context_, batch, ahead.get(), scratch.get()).ok());
  ASSERT_TRUE(engine_.Read(context_, {tables, 1}, ahead.get(), {&output_ahead, 1}, scratch.get()).ok());
  EXPECT_EQ(outputs_ahead, outputs);

  ASSERT_EQ(plan->trained_rows(0), 2);
  const std::vector<float> gradients = {1, 0, 100, 0};
  const GradientRows gradient{gradients.data(), kDim};
  std::vector<float> sums(4);
  float* grads_out[] = {sums.data()};
  ASSERT_TRUE(engine_.Backward(context_, *plan, {&gradient, 1}, {grads_out, 1}, scratch.get()).ok());
  // In the order of first occurrence in bags: 6, then 5.
  EXPECT_EQ(sums, (std::vector<float>{3, 0, 204, 0}));

  std::vector<float> weights(3);
  float* weight_grads[] = {weights.data()};
  ASSERT_TRUE(engine_.WeightGradients(context_, {tables, 1}, *plan, {&gradient, 1}, {weight_grads, 1}).ok());
  EXPECT_EQ(weights, (std::vector<float>{100, 10, 1}));  // in the order given

  const float rate = 0.5f;
  std::vector<int64_t> references(2);
  ASSERT_TRUE(plan->WriteReferences(context_, 0, references.data()).ok());
  ASSERT_TRUE(table->ApplyGradients(context_, "sgd", {&rate, 1}, references, sums.data(), true).ok());
  EXPECT_EQ(RowOf(table.get(), 5), (std::vector<float>{-101, 2}));
  const EngineStep step{0, table.get(), {&rate, 1}};
  ASSERT_TRUE(engine_.Train(context_, *plan, {&gradient, 1}, "sgd", {&step, 1}, scratch.get()).ok());
  EXPECT_EQ(RowOf(table.get(), 5), (std::vector<float>{-203, 2}));
  EXPECT_EQ(RowOf(table.get(), 6), (std::vector<float>{7, 20}));
  EXPECT_EQ(table->lookup_counts().ids, 6);
}

// Two ranks with one table each, and the objects of one step.
class TwoRanks {
 public:
  TwoRanks(Engine* engine, const EngineContext& context) : engine_(*engine), context_(context) {
    for (int r = 0; r < 2; ++r) {
      Rank& rank = ranks_[r];
      rank.table = engine_.MakeTable(context_, Options(r, 2)).value();
      rank.tables = {rank.table.get()};
      rank.scratch = engine_.NewScratch();
      rank.routed = engine_.NewRoutedGroup();
      rank.served = engine_.NewServedGroup();
      rank.outputs.resize(4);
      rank.output = {rank.outputs.data(), kDim};
    }
  }

  struct Rank {
    std::shared_ptr<EngineTable> table;
    std::vector<EngineTable*> tables;
    std::unique_ptr<EngineScratch> scratch;
    std::unique_ptr<RoutedGroup> routed;
    std::unique_ptr<ServedGroup> served;
    Outbox outbox;
    Arrived replies;
    std::vector<float> outputs;
    OutputRows output;
    Status status;
  };
  Rank& rank(int r) { return ranks_[r]; }

  // The forward pass; statuses[r] is what rank r found wrong with its inputs.
  void Forward(const std::vector<SparseLookup>& lookups, const std::vector<Status>& statuses) {
    for (int r = 0; r < 2; ++r) {
      Rank& rank = ranks_[r];
      const GroupBatch batch{rank.tables, {&lookups[r].spec, 1}, {&lookups[r].input, 1}, true};
      const Status status = engine_.Route(context_, batch, {&mode_, 1}, statuses[r], rank.routed.get(),
                                          rank.scratch.get(), Allocator(&rank));
      ASSERT_TRUE(status.ok()) << status.message();
    }
    const std::vector<Arrived> requests = ExchangeAll();
    for (int r = 0; r < 2; ++r) {
      Rank& rank = ranks_[r];
      const Status status = engine_.Serve(context_, rank.tables, {&mode_, 1}, requests[r].inbox,
                                          rank.served.get(), rank.scratch.get(), Allocator(&rank));
      ASSERT_TRUE(status.ok()) << status.message();
    }
    std::vector<Arrived> replies = ExchangeAll();
    for (int r = 0; r < 2; ++r) {
      Rank& rank = ranks_[r];
      rank.replies = std::move(replies[r]);
      rank.status =
          engine_.Combine(context_, rank.tables, *rank.routed, rank.replies.inbox, {&rank.output, 1});
    }
  }

  std::vector<Arrived> Reduce(const GradientRows& gradient) {
    for (Rank& rank : ranks_) {
      rank.status = engine_.Reduce(context_, *rank.routed, {&gradient, 1}, rank.replies.inbox,
                                   GradientFormat::kFloat32, Allocator(&rank));
    }
    return ExchangeAll();
  }

 private:
  struct Allocation {
    Rank* rank;
    int64_t* operator()(Span<const int64_t> sizes) const { return rank->outbox.Allocate(sizes); }
  };
  static Allocation Allocator(Rank* rank) { return {rank}; }
  std::vector<Arrived> ExchangeAll() { return Exchange({ranks_[0].outbox, ranks_[1].outbox}); }

  Engine& engine_;
  const EngineContext& context_;
  const ExchangeMode mode_ = ExchangeMode::kRows;
  Rank ranks_[2];
};

TEST_F(CpuEngineTest, AGroupOverRanksGivesWhatOneRankDoes) {
  const std::shared_ptr<EngineTable> alone = MakeTable();
  const std::vector<SparseLookup> lookups(2);
  std::vector<float> expected(4);
  const OutputRows output{expected.data(), kDim};
  EngineTable* const tables[] = {alone.get()};
  ASSERT_TRUE(engine_
                  .Lookup(context_, {{tables, 1}, {&lookups[0].spec, 1}, {&lookups[0].input, 1}, true},
                          engine_.NewPlan().get(), {&output, 1}, engine_.NewScratch().get())
                  .ok());

  TwoRanks ranks(&engine_, context_);
  ranks.Forward({SparseLookup(), SparseLookup()}, {OkStatus(), OkStatus()});
  const std::vector<float> gradients = {1, 0, 100, 0};
  const GradientRows gradient{gradients.data(), kDim};
  for (int r = 0; r < 2; ++r) {
    ASSERT_TRUE(ranks.rank(r).status.ok()) << ranks.rank(r).status.message();
    EXPECT_EQ(ranks.rank(r).outputs, expected);
    EXPECT_EQ(ranks.rank(r).served->trained_rows(0), 1);
    std::vector<float> weights(3);
    float* weight_grads[] = {weights.data()};
    ASSERT_TRUE(engine_
                    .RoutedWeightGradients(context_, *ranks.rank(r).routed, ranks.rank(r).replies.inbox,
                                           {&gradient, 1}, {weight_grads, 1})
                    .ok());
    const float row5 = RowOf(alone.get(), 5)[0];
    EXPECT_EQ(weights, (std::vector<float>{100 * row5, RowOf(alone.get(), 6)[0], row5}));
  }

  const std::vector<Arrived> messages = ranks.Reduce(gradient);
  const float expected_sums[] = {2 * 3, 2 * 204};  // of key 6 on rank 0, and of key 5 on rank 1
  const float rate = 0.5f;
  for (int r = 0; r < 2; ++r) {
    TwoRanks::Rank& rank = ranks.rank(r);
    float sums[kDim] = {};
    float* grads_out[] = {sums};
    ASSERT_TRUE(
        engine_.Sum(context_, *rank.served, messages[r].inbox, {grads_out, 1}, rank.scratch.get()).ok());
    EXPECT_EQ(sums[0], expected_sums[r]);
    const int64_t key = r == 0 ? 6 : 5;
    const float before = RowOf(alone.get(), key)[0];
    const EngineStep step{0, rank.table.get(), {&rate, 1}};
    ASSERT_TRUE(engine_
                    .SumAndTrain(context_, *rank.served, messages[r].inbox, /*divisor=*/2.0f, "sgd",
                                 {&step, 1}, rank.scratch.get())
                    .ok());
    int64_t references[1] = {-1};
    ASSERT_TRUE(rank.served->WriteReferences(context_, 0, references).ok());
    const float no_gradient[kDim] = {1.0f, 0.0f};
    ASSERT_TRUE(
        rank.table->ApplyGradients(context_, "sgd", {&rate, 1}, {references, 1}, no_gradient, true).ok());
    EXPECT_FLOAT_EQ(RowOf(rank.table.get(), key)[0], before - rate * expected_sums[r] / 2 - rate);
  }
}

TEST_F(CpuEngineTest, AnErrorOfOneRanksInputsIsThatOfAllRanks) {
  TwoRanks ranks(&engine_, context_);
  ranks.Forward({SparseLookup(), SparseLookup()}, {OkStatus(), InvalidArgument("the caller found this")});
  std::vector<SparseLookup> bad(2);
  bad[0].indices[4] = 2;
  TwoRanks others(&engine_, context_);
  others.Forward(bad, {OkStatus(), OkStatus()});
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(ranks.rank(r).status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(ranks.rank(r).status.message().find("the caller found this"), std::string::npos);
    EXPECT_NE(others.rank(r).status.message().find("index 2 of the sparse ids is in row 2 of 2"),
              std::string::npos)
        << others.rank(r).status.message();
    EXPECT_EQ(ranks.rank(r).table->Describe().rows, 0);
  }
}

TEST_F(CpuEngineTest, LaterCallsOfALookupThatHadAnErrorAreRefused) {
  TwoRanks good(&engine_, context_);
  good.Forward({SparseLookup(), SparseLookup()}, {OkStatus(), OkStatus()});
  TwoRanks bad(&engine_, context_);
  bad.Forward({SparseLookup(), SparseLookup()}, {InvalidArgument("bad"), InvalidArgument("bad")});
  TwoRanks::Rank& rank = bad.rank(0);
  const std::vector<float> gradients(4);
  const GradientRows gradient{gradients.data(), kDim};
  float weights[3];
  float* weight_grads[] = {weights};
  EXPECT_EQ(engine_
                .RoutedWeightGradients(context_, *rank.routed, good.rank(0).replies.inbox, {&gradient, 1},
                                       {weight_grads, 1})
                .code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine_
                .Reduce(context_, *rank.routed, {&gradient, 1}, good.rank(0).replies.inbox,
                        GradientFormat::kFloat32, [](Span<const int64_t>) -> int64_t* { return nullptr; })
                .code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(rank.served->trained_rows(0), 0);
  EXPECT_EQ(engine_.Sum(context_, *rank.served, good.rank(0).replies.inbox, {}, rank.scratch.get()).code(),
            StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sok
