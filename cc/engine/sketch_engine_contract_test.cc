// The sketch engine passes the contract suites of what it implements. So the suites require no more than the
// interface says.
#include <memory>

#include "cc/engine/contract/sketch_engine.h"
#include "cc/engine/contract/suites.h"

namespace sok {
namespace {

EngineCase SketchCase() {
  static Engine* const engine = MakeSketchEngine().release();
  EngineCase engine_case;
  engine_case.name = "sketch";
  engine_case.engine = engine;
  engine_case.optimizers = {"sgd"};
  return engine_case;
}

#define SOK_SKETCH_OFFERS(suite) \
  INSTANTIATE_TEST_SUITE_P(Sketch, suite, testing::Values(SketchCase()), NameOfCase)

SOK_SKETCH_OFFERS(TableContract);
SOK_SKETCH_OFFERS(EraseContract);
SOK_SKETCH_OFFERS(LookupContract);
SOK_SKETCH_OFFERS(GradientContract);
SOK_SKETCH_OFFERS(TrainingContract);

TEST(SketchEngineTest, CallsThatAreNotImplementedNameTheEngineAndTheVariable) {
  const std::unique_ptr<Engine> engine = MakeSketchEngine();
  InlineExecutor executor;
  const EngineContext context{executor};
  TableOptions options;
  options.name = "user";
  options.dim = 1;
  auto made = engine->MakeTable(context, options);
  ASSERT_TRUE(made.ok());
  EngineTable* const table = made.value().get();
  const Status status = engine->Merge(context, {Span<EngineTable* const>(&table, 1), {}, {}, true},
                                      engine->NewPlan().get(), nullptr);
  ExpectNames(status, StatusCode::kUnimplemented, {"'user'", "'sketch'"});
}

}  // namespace
}  // namespace sok
