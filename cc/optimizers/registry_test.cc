#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/optimizers/optimizer.h"

namespace sok {
namespace {

const std::vector<std::string> kNames = {"sgd",
                                         "momentum",
                                         "nesterov",
                                         "keras_momentum",
                                         "keras_nesterov",
                                         "adagrad",
                                         "adagrad_decay",
                                         "rmsprop",
                                         "rmsprop_centered",
                                         "keras_rmsprop",
                                         "keras_rmsprop_centered",
                                         "ftrl",
                                         "rowwise_adagrad",
                                         "adadelta",
                                         "adamax",
                                         "nadam",
                                         "adam",
                                         "lazy_adam"};

TEST(MakeOptimizer, KnowsEveryNameItDocuments) {
  for (const std::string& name : kNames) {
    auto optimizer = MakeOptimizer(name);
    ASSERT_TRUE(optimizer.ok()) << name;
    EXPECT_EQ(optimizer.value()->name(), name);
    const std::vector<float> hyper(optimizer.value()->hyper_parameters().size(), 0.5f);
    EXPECT_EQ(optimizer.value()->Slots(8, hyper).size(), optimizer.value()->slot_names().size()) << name;
  }
}

TEST(MakeOptimizer, UnknownNameIsRefusedWithTheKnownOnes) {
  for (const char* name : {"", "Adam", "adamw", "Nadam", "sgd "}) {
    auto optimizer = MakeOptimizer(name);
    ASSERT_FALSE(optimizer.ok());
    EXPECT_EQ(optimizer.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(optimizer.status().message().find(std::string("'") + name + "'"), std::string::npos);
    for (const std::string& known : kNames) {
      EXPECT_NE(optimizer.status().message().find(known), std::string::npos) << known;
    }
  }
}

TEST(Slots, WidthsAndFills) {
  const auto adagrad = MakeOptimizer("adagrad").value()->Slots(7, std::vector<float>{0.1f, 0.25f, 0.0f});
  ASSERT_EQ(adagrad.size(), 1u);
  EXPECT_EQ(adagrad[0].width, 7);
  EXPECT_EQ(adagrad[0].fill, 0.25f);
  const auto rowwise =
      MakeOptimizer("rowwise_adagrad").value()->Slots(7, std::vector<float>{0.1f, 0.25f, 0.0f});
  ASSERT_EQ(rowwise.size(), 1u);
  EXPECT_EQ(rowwise[0].width, 1);
  EXPECT_EQ(rowwise[0].fill, 0.25f);
  const auto rmsprop =
      MakeOptimizer("rmsprop").value()->Slots(3, std::vector<float>{0.1f, 0.9f, 0.0f, 1e-7f, 1.0f});
  ASSERT_EQ(rmsprop.size(), 2u);
  EXPECT_EQ(rmsprop[0].fill, 1.0f);
  EXPECT_EQ(rmsprop[1].fill, 0.0f);
}

}  // namespace
}  // namespace sok
