#include "cc/engine/engine.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/contract/sketch_engine.h"
#include "cc/engine/registry.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

class EngineTest : public testing::Test {
 protected:
  EngineTest() {
    TableOptions options;
    options.name = "clicks";
    options.dim = 2;
    table_ = engine_.MakeTable(context_, options).value();
    tables_ = {table_.get()};
    batch_.tables = tables_;
    plan_ = engine_.NewPlan();
    scratch_ = engine_.NewScratch();
  }

  static void ExpectUnimplemented(const Status& status, const std::string& message) {
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_EQ(status.message(), message);
  }

  InlineExecutor executor_;
  const EngineContext context_{executor_};
  const std::unique_ptr<Engine> made_ = MakeSketchEngine();
  Engine& engine_ = *made_;
  std::shared_ptr<EngineTable> table_;
  std::vector<EngineTable*> tables_;
  GroupBatch batch_;
  std::unique_ptr<GroupPlan> plan_;
  std::unique_ptr<EngineScratch> scratch_;
};

TEST_F(EngineTest, ObjectsKnowTheirEngine) {
  EXPECT_EQ(&table_->engine(), &engine_);
  EXPECT_EQ(&plan_->engine(), &engine_);
  EXPECT_EQ(&scratch_->engine(), &engine_);
}

TEST_F(EngineTest, CallsThatAreNotImplementedNameTheEngineAndTheVariable) {
  const std::string who = "Embedding variable 'clicks': the engine 'sketch' does not implement ";
  ExpectUnimplemented(engine_.Merge(context_, batch_, plan_.get(), scratch_.get()),
                      who + "lookups a step ahead");
  ExpectUnimplemented(engine_.Read(context_, tables_, plan_.get(), {}, scratch_.get()),
                      who + "lookups a step ahead");
  ExpectUnimplemented(engine_.WeightGradients(context_, tables_, *plan_, {}, {}),
                      who + "gradients of weights");
  const EngineStep step{0, table_.get(), {}};
  ExpectUnimplemented(engine_.Train(context_, *plan_, {}, "sgd", {&step, 1}, scratch_.get()),
                      who + "fused updates");
  ExpectUnimplemented(table_->SetGlobalStep(1), who + "global steps");
  ExpectUnimplemented(table_->Hold(context_).status(), who + "checkpoints, exports and raw files");
}

TEST_F(EngineTest, LookupsOverRanksNeedNotBeImplemented) {
  EXPECT_EQ(engine_.NewRoutedGroup(), nullptr);
  EXPECT_EQ(engine_.NewServedGroup(), nullptr);
  const auto never = [](Span<const int64_t> /*sizes*/) -> int64_t* { return nullptr; };
  const Inbox nothing;
  const std::string what = " does not implement lookups over ranks";
  const std::string who = "Embedding variable 'clicks': the engine 'sketch'" + what;
  ExpectUnimplemented(engine_.Route(context_, batch_, {}, OkStatus(), nullptr, scratch_.get(), never), who);
  ExpectUnimplemented(engine_.Serve(context_, tables_, {}, nothing, nullptr, scratch_.get(), never), who);
  class NoRoute final : public RoutedGroup {
   public:
    using RoutedGroup::RoutedGroup;
  };
  const NoRoute routed(&engine_);
  ExpectUnimplemented(engine_.Combine(context_, tables_, routed, nothing, {}), who);
  ExpectUnimplemented(engine_.Reduce(context_, routed, {}, nothing, GradientFormat::kFloat32, never),
                      "The engine 'sketch'" + what);
  ExpectUnimplemented(engine_.RoutedWeightGradients(context_, routed, nothing, {}, {}),
                      "The engine 'sketch'" + what);
}

TEST(EngineRegistry, KnowsTheCpu) {
  const StatusOr<Engine*> found = FindEngine("cpu");
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found.value()->name(), "cpu");
}

TEST(EngineRegistry, AnUnknownNameIsAnErrorThatListsTheEngines) {
  const StatusOr<Engine*> found = FindEngine("abacus");
  EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(found.status().message().find("There is no engine 'abacus'; known are 'cpu'"), 0U)
      << found.status().message();
}

TEST(EngineRegistry, RefusesANameThatIsTaken) {
  auto engine = MakeSketchEngine("registry_test");
  const Engine* const first = engine.get();
  EXPECT_TRUE(RegisterEngine(std::move(engine)));
  EXPECT_FALSE(RegisterEngine(MakeSketchEngine("registry_test")));
  EXPECT_EQ(FindEngine("registry_test").value(), first);
}

}  // namespace
}  // namespace sok
