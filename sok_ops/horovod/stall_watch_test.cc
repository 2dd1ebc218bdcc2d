#include "sok_ops/horovod/stall_watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
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

constexpr int64_t kPeriodMs = 2;
constexpr auto kLong = std::chrono::seconds(60);

// Horovod for ranks that are all in this process: a thread that moves the words of each round once every rank
// has enqueued its part.
class FakeHorovod {
 public:
  explicit FakeHorovod(int ranks) : parts_(ranks), thread_([this] { Run(); }) {}
  ~FakeHorovod() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Status Enqueue(int rank, std::shared_ptr<Alltoall> part) {
    std::lock_guard<std::mutex> lock(mutex_);
    parts_[rank] = std::move(part);
    changed_.notify_all();
    return OkStatus();
  }

  // Sets the function that is called with each round's number, from 1, before the round's words are moved.
  // When this returns, no call of the previous function is running.
  void BeforeRounds(std::function<void(int)> function) {
    std::lock_guard<std::mutex> lock(before_round_mutex_);
    before_round_ = std::move(function);
  }
  // Sets whether rounds end with an error.
  void Break(bool broken) {
    std::lock_guard<std::mutex> lock(mutex_);
    broken_ = broken;
  }

  int rounds() {
    std::lock_guard<std::mutex> lock(mutex_);
    return rounds_;
  }
  bool WaitForRounds(int n) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return rounds_ >= n; });
  }

 private:
  void CallBeforeRound(int round) {
    std::lock_guard<std::mutex> lock(before_round_mutex_);
    if (before_round_) before_round_(round);
  }

  bool Complete() const {
    return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part != nullptr; });
  }

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || Complete(); });
      if (stopping_) return;
      auto parts = std::exchange(parts_, std::vector<std::shared_ptr<Alltoall>>(parts_.size()));
      const bool broken = broken_;
      const int round = ++rounds_;
      changed_.notify_all();
      lock.unlock();
      CallBeforeRound(round);
      for (size_t rank = 0; rank < parts.size(); ++rank) {
        if (!broken) Move(parts, rank);
      }
      for (const auto& part : parts) part->Done(broken ? Internal("broken") : OkStatus());
      lock.lock();
    }
  }

  // Delivers the words that all ranks sent to `rank`.
  static void Move(const std::vector<std::shared_ptr<Alltoall>>& parts, int rank) {
    std::vector<int64_t> words;
    std::vector<int32_t> splits;
    for (const auto& part : parts) {
      const Span<const int32_t> sizes = part->splits();
      int64_t begin = 0;
      for (int before = 0; before < rank; ++before) begin += sizes[before];
      words.insert(words.end(), part->words() + begin, part->words() + begin + sizes[rank]);
      splits.push_back(sizes[rank]);
    }
    std::copy(words.begin(), words.end(), parts[rank]->AllocateReceived(words.size()).value());
    std::copy(splits.begin(), splits.end(), parts[rank]->AllocateReceivedSplits(splits.size()).value());
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Alltoall>> parts_;
  std::mutex before_round_mutex_;
  std::function<void(int)> before_round_;
  int rounds_ = 0;
  bool broken_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

class FakeExchange final : public WatchedExchange {
 public:
  FakeExchange(StallWatch* watch, std::string name) : watch_(watch), name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  void FailStalled(const Status& status) override {
    watch_->End(this);
    failed_.set_value(status);
  }
  // Waits for the exchange's error, and returns its message.
  std::string Error() {
    auto future = failed_.get_future();
    return future.wait_for(kLong) == std::future_status::ready ? future.get().message() : "none";
  }
  bool Failed() {
    return failed_.get_future().wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  StallWatch* const watch_;
  const std::string name_;
  std::promise<Status> failed_;
};

class StallWatchTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;

  StallWatchTest() {
    for (int rank = 0; rank < kRanks; ++rank) {
      watches_.push_back(
          std::make_unique<StallWatch>([this, rank](const std::string&, std::shared_ptr<Alltoall> part) {
            return horovod_->Enqueue(rank, std::move(part));
          }));
    }
  }
  ~StallWatchTest() override {
    horovod_->BeforeRounds({});
    for (const auto& [rank, exchange] : begun_) watches_[rank]->End(exchange.get());
    for (const auto& watch : watches_) watch->Stop();
    horovod_.reset();
  }

  std::shared_ptr<FakeExchange> Begin(int rank, const std::string& name, int64_t period_ms = kPeriodMs) {
    auto exchange = std::make_shared<FakeExchange>(watches_[rank].get(), name);
    begun_.emplace_back(rank, exchange);
    watches_[rank]->Begin(exchange, kRanks, period_ms);
    return exchange;
  }
  void End(int rank, const std::shared_ptr<FakeExchange>& exchange) { watches_[rank]->End(exchange.get()); }

  std::unique_ptr<FakeHorovod> horovod_ = std::make_unique<FakeHorovod>(kRanks);
  std::vector<std::unique_ptr<StallWatch>> watches_;
  std::vector<std::pair<int, std::shared_ptr<FakeExchange>>> begun_;
};

TEST_F(StallWatchTest, RanksInDifferentExchangesFailInTheFifthUnchangedRound) {
  int last_round = 0;
  horovod_->BeforeRounds([&](int round) { last_round = round; });
  const auto a = Begin(0, "a"), b = Begin(0, "b"), c = Begin(1, "c");
  for (const auto& exchange : {a, b, c}) {
    EXPECT_NE(exchange->Error().find("rank 0 waits for 'a', 'b'; rank 1 waits for 'c'"), std::string::npos);
  }
  horovod_->BeforeRounds({});
  EXPECT_GE(last_round, 5);
}

TEST_F(StallWatchTest, NoFailureWhileAllRanksAwaitOneExchange) {
  const auto a = Begin(0, "a"), both = Begin(0, "both"), c = Begin(1, "c"), too = Begin(1, "both");
  ASSERT_TRUE(horovod_->WaitForRounds(20));
  for (const auto& exchange : {a, both, c, too}) EXPECT_FALSE(exchange->Failed());
}

TEST_F(StallWatchTest, NoFailureWhileARankIsOutsideOfExchanges) {
  const auto a = Begin(0, "a"), first = Begin(1, "first");
  End(1, first);
  ASSERT_TRUE(horovod_->WaitForRounds(20));
  EXPECT_FALSE(a->Failed());
}

TEST_F(StallWatchTest, NoFailureWhileARankMakesProgress) {
  const auto a = Begin(0, "a"), b = Begin(1, "b");
  // Rank 1 always waits for an exchange that rank 0 does not await, but at most three rounds in a row are
  // unchanged.
  horovod_->BeforeRounds([&](int round) {
    if (round % 4 == 0) End(1, Begin(1, "c"));
  });
  ASSERT_TRUE(horovod_->WaitForRounds(40));
  EXPECT_FALSE(a->Failed());
  EXPECT_FALSE(b->Failed());
}

TEST_F(StallWatchTest, NoFailureWhileExchangesEnd) {
  const auto a = Begin(0, "a"), b = Begin(1, "b");
  std::vector<std::shared_ptr<FakeExchange>> left;
  for (int i = 0; i < 10; ++i) left.push_back(Begin(1, "c"));
  horovod_->BeforeRounds([&](int round) {
    if (round % 4 != 0 || left.empty()) return;
    End(1, left.back());
    left.pop_back();
  });
  ASSERT_TRUE(horovod_->WaitForRounds(40));
  horovod_->BeforeRounds({});
  EXPECT_FALSE(a->Failed());
  EXPECT_FALSE(b->Failed());
}

TEST_F(StallWatchTest, NoFailureWhileExchangesBegin) {
  const auto a = Begin(0, "a"), b = Begin(1, "b");
  horovod_->BeforeRounds([&](int round) {
    if (round % 4 == 0) Begin(1, "c");
  });
  ASSERT_TRUE(horovod_->WaitForRounds(40));
  EXPECT_FALSE(a->Failed());
  EXPECT_FALSE(b->Failed());
}

TEST_F(StallWatchTest, RoundsAreCountedFromTheBeginningOfALateExchange) {
  const auto a = Begin(0, "a"), first = Begin(1, "first");
  End(1, first);
  ASSERT_TRUE(horovod_->WaitForRounds(20));
  EXPECT_FALSE(a->Failed());
  const auto c = Begin(1, "c");
  const int rounds = horovod_->rounds();
  EXPECT_NE(c->Error().find("rank 0 waits for 'a'; rank 1 waits for 'c'"), std::string::npos);
  // The failure takes five rounds with the exchange; `rounds` may count the first of them already.
  EXPECT_GE(horovod_->rounds(), rounds + 4);
}

TEST_F(StallWatchTest, PeriodZeroOnRank0TurnsTheWatchOffOnAllRanks) {
  const auto a = Begin(0, "a", /*period_ms=*/0), b = Begin(1, "b");
  ASSERT_TRUE(horovod_->WaitForRounds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  End(0, Begin(0, "c", /*period_ms=*/0));
  End(1, Begin(1, "c"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(horovod_->rounds(), 1);
  EXPECT_FALSE(a->Failed());
}

TEST_F(StallWatchTest, StartsAgainAfterHorovodEnded) {
  horovod_->Break(true);
  const auto a = Begin(0, "a"), b = Begin(1, "b");
  ASSERT_TRUE(horovod_->WaitForRounds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(horovod_->rounds(), 1);
  horovod_->Break(false);
  const auto c = Begin(0, "c"), d = Begin(1, "d");
  EXPECT_NE(d->Error().find("rank 0 waits for 'a', 'c'; rank 1 waits for 'b', 'd'"), std::string::npos);
}

// While it exists, no thread can be created: there is no room for a stack of this size.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 47);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST_F(StallWatchTest, WithoutAThreadTheNextExchangeStartsIt) {
  std::shared_ptr<FakeExchange> a, b;
  {
    const NoThreads none;
    EXPECT_THROW(std::thread([] {}), std::system_error);
    a = Begin(0, "a"), b = Begin(1, "b");
  }
  const auto c = Begin(0, "c"), d = Begin(1, "d");
  EXPECT_NE(d->Error().find("rank 0 waits for 'a', 'c'; rank 1 waits for 'b', 'd'"), std::string::npos);
}

}  // namespace
}  // namespace sok
