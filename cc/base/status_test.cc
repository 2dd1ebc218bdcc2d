#include "cc/base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace sok {
namespace {

TEST(StatusTest, OkHasNoMessage) {
  EXPECT_TRUE(OkStatus().ok());
  EXPECT_EQ(OkStatus().code(), StatusCode::kOk);
  EXPECT_EQ(OkStatus().message(), "");
}

TEST(StatusTest, ErrorsCarryCodeAndValues) {
  const Status status = ResourceExhausted("'", std::string("table"), "' holds ", 3, " of ", 2.5);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "'table' holds 3 of 2.5");
  EXPECT_EQ(InvalidArgument("x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FailedPrecondition("x").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(NotFound("x").code(), StatusCode::kNotFound);
  EXPECT_EQ(DataLoss("x").code(), StatusCode::kDataLoss);
  EXPECT_EQ(Unimplemented("x").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Internal("x").code(), StatusCode::kInternal);
}

TEST(StatusTest, ReturnIfErrorPassesErrorsOnAndGoesOnAfterOk) {
  int calls = 0;
  const auto run = [&](const Status& first) -> Status {
    SOK_RETURN_IF_ERROR(first);
    ++calls;
    return OkStatus();
  };
  EXPECT_EQ(run(NotFound("here")).message(), "here");
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(run(OkStatus()).ok());
  EXPECT_EQ(calls, 1);
}

TEST(StatusOrTest, HoldsAValueThatOnlyMoves) {
  StatusOr<std::unique_ptr<int>> made = std::make_unique<int>(7);
  ASSERT_TRUE(made.ok());
  const std::unique_ptr<int> taken = std::move(made.value());
  EXPECT_EQ(*taken, 7);
}

TEST(StatusOrTest, HoldsAnError) {
  const StatusOr<int> none = DataLoss("byte 3");
  EXPECT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(), "byte 3");
}

}  // namespace
}  // namespace sok
