#include "cc/engine/registry.h"

#include <utility>

#include "cc/engine/contract/sketch_engine.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

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
