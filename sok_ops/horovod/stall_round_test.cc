#include "sok_ops/horovod/stall_round.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sok {
namespace {

Waiting Stuck(std::vector<std::string> names) { return Waiting{250, true, std::move(names)}; }

TEST(StallRoundTest, DecodeReturnsWhatWasEncoded) {
  for (const Waiting& sent : {Waiting{}, Stuck({"a"}), Stuck({"", "12345678", "123456789", "täble"})}) {
    const StatusOr<Waiting> got = Decode(Encode(sent));
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got.value().period_ms, sent.period_ms);
    EXPECT_EQ(got.value().stuck, sent.stuck);
    EXPECT_EQ(got.value().names, sent.names);
  }
}

TEST(StallRoundTest, MalformedWordsAreAnError) {
  for (const std::vector<int64_t>& words : std::vector<std::vector<int64_t>>{{},
                                                                             {1, 1},
                                                                             {1, 1, -1},
                                                                             {1, 1, 1},
                                                                             {1, 1, 1, 9, 0},
                                                                             {1, 1, 1, -1},
                                                                             {1, 1, 2, 0},
                                                                             {1, 1, INT64_MAX}}) {
    EXPECT_FALSE(Decode(words).ok());
  }
}

TEST(StallRoundTest, TheErrorSaysWhichRanksWaitForWhat) {
  const Status status = CheckForDeadlock({Stuck({"b", "a"}), Stuck({"c"}), Stuck({"a", "b"})});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("ranks 0, 2 wait for 'a', 'b'; rank 1 waits for 'c'"), std::string::npos)
      << status.message();
}

TEST(StallRoundTest, NoDeadlockIfAllRanksAwaitOneExchange) {
  EXPECT_TRUE(CheckForDeadlock({Stuck({"a", "b"}), Stuck({"c", "b"})}).ok());
}

TEST(StallRoundTest, NoDeadlockIfOneRankIsNotStuck) {
  Waiting busy = Stuck({"c"});
  busy.stuck = false;
  EXPECT_TRUE(CheckForDeadlock({Stuck({"a"}), busy}).ok());
  EXPECT_TRUE(CheckForDeadlock({busy, Stuck({"a"})}).ok());
}

TEST(StallRoundTest, DeadlockIfOnlyPairsOfRanksAwaitOneExchange) {
  EXPECT_FALSE(CheckForDeadlock({Stuck({"a", "b"}), Stuck({"b", "c"}), Stuck({"c", "a"})}).ok());
}

TEST(StallRoundTest, LongListsAreCut) {
  std::vector<std::string> names;
  for (char c = 'a'; c < 'a' + 11; ++c) names.emplace_back(1, c);
  const Status status = CheckForDeadlock({Stuck(names), Stuck({"z"})});
  EXPECT_NE(status.message().find("'h' and 3 more;"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace sok
