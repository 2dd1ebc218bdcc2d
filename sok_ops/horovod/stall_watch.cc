#include "sok_ops/horovod/stall_watch.h"

#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

namespace sok {
namespace {

constexpr int kRoundsPerStall = 4;
constexpr double kDefaultSeconds = 60;
constexpr double kMinSeconds = 0.1, kMaxSeconds = 1e6;
constexpr char kRoundName[] = "sok.stall_watch";

}  // namespace

// One round's alltoall: sends this rank's report to every rank.
class StallWatch::Round final : public Alltoall {
 public:
  Round(StallWatch* watch, int ranks, const std::vector<int64_t>& own)
      : watch_(watch), splits_(ranks, own.size()) {
    for (int rank = 0; rank < ranks; ++rank) words_.insert(words_.end(), own.begin(), own.end());
  }

  const int64_t* words() const override { return words_.data(); }
  Span<const int32_t> splits() const override { return splits_; }
  StatusOr<int64_t*> AllocateReceived(int64_t words) override {
    received_.resize(words);
    return received_.data();
  }
  StatusOr<int32_t*> AllocateReceivedSplits(int64_t ranks) override {
    received_splits_.resize(ranks);
    return received_splits_.data();
  }
  void Done(const Status& status) override {
    const MutexLock lock(watch_->mutex_);
    status_ = status;
    done = true;
    watch_->changed_.NotifyAll();
  }

  // The reports of all ranks. Call it only if `done`.
  StatusOr<std::vector<Waiting>> States() const {
    SOK_RETURN_IF_ERROR(status_);
    std::vector<Waiting> states;
    int64_t begin = 0;
    for (int32_t words : received_splits_) {
      StatusOr<Waiting> state = Decode(Span<const int64_t>(received_).subspan(begin, words));
      if (!state.ok()) return state.status();
      states.push_back(std::move(state.value()));
      begin += words;
    }
    return states;
  }

  bool done = false;  // guarded by the watch's mutex, which the thread-safety analysis cannot name here

 private:
  StallWatch* const watch_;
  std::vector<int64_t> words_;
  const std::vector<int32_t> splits_;
  std::vector<int64_t> received_;
  std::vector<int32_t> received_splits_;
  Status status_;
};

StatusOr<int64_t> StallWatch::PeriodMs() {
  const char* const text = std::getenv("SOK_STALL_SECONDS");
  double seconds = kDefaultSeconds;
  if (text != nullptr && *text != '\0') {
    char* end = nullptr;
    seconds = std::strtod(text, &end);
    const bool in_range = seconds == 0 || (seconds >= kMinSeconds && seconds <= kMaxSeconds);
    if (*end != '\0' || !in_range) {
      return InvalidArgument("SOK_STALL_SECONDS is '", text, "'; it must be a number of seconds from ",
                             kMinSeconds, " to ", kMaxSeconds,
                             ", or 0 to let ranks wait for each other forever");
    }
  }
  return static_cast<int64_t>(seconds * 1000 / kRoundsPerStall);
}

void StallWatch::Begin(std::shared_ptr<WatchedExchange> exchange, int ranks, int64_t period_ms) {
  const MutexLock lock(mutex_);
  const WatchedExchange* const key = exchange.get();
  exchanges_.emplace(key, std::move(exchange));
  ++changes_;
  if (ranks == 1 || running_ || off_ || stopping_) return;
  running_ = true;
  std::thread(&StallWatch::Run, this, ranks, period_ms).detach();
}

void StallWatch::End(const WatchedExchange* exchange) {
  const MutexLock lock(mutex_);
  changes_ += exchanges_.erase(exchange);
}

void StallWatch::Run(int ranks, int64_t own_period_ms) {
  bool stopped = false;
  while (!stopped) {
    const StatusOr<std::vector<Waiting>> states = RunRound(ranks, Sample(own_period_ms));
    if (!states.ok()) break;  // Horovod shuts down, and has ended the exchanges itself
    const Status deadlock = CheckForDeadlock(states.value());
    if (!deadlock.ok()) FailAll(deadlock);

    const std::chrono::milliseconds period(states.value()[0].period_ms);
    const auto next_round = std::chrono::steady_clock::now() + period;
    const MutexLock lock(mutex_);
    off_ = period.count() == 0;
    while (!off_ && !stopping_ && changed_.WaitUntil(mutex_, next_round)) {
    }
    stopped = off_ || stopping_;
  }
  const MutexLock lock(mutex_);
  running_ = false;
  changed_.NotifyAll();
}

Waiting StallWatch::Sample(int64_t own_period_ms) {
  const MutexLock lock(mutex_);
  unchanged_rounds_ = exchanges_.empty() || changes_ != sampled_changes_ ? 0 : unchanged_rounds_ + 1;
  sampled_changes_ = changes_;
  Waiting waiting{own_period_ms, unchanged_rounds_ >= kRoundsPerStall, {}};
  for (const auto& [key, exchange] : exchanges_) waiting.names.push_back(exchange->name());
  return waiting;
}

StatusOr<std::vector<Waiting>> StallWatch::RunRound(int ranks, const Waiting& own) {
  const auto round = std::make_shared<Round>(this, ranks, Encode(own));
  SOK_RETURN_IF_ERROR(queue_(kRoundName, round));
  const MutexLock lock(mutex_);
  while (!round->done && !stopping_) changed_.Wait(mutex_);
  if (!round->done) return FailedPrecondition("the process exits");
  return round->States();
}

void StallWatch::FailAll(const Status& status) {
  std::vector<std::shared_ptr<WatchedExchange>> exchanges;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, exchange] : exchanges_) exchanges.push_back(exchange);
  }
  for (const auto& exchange : exchanges) exchange->FailStalled(status);
}

void StallWatch::Stop() {
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  const MutexLock lock(mutex_);
  stopping_ = true;
  changed_.NotifyAll();
  // A child of fork() does not have the thread, so the wait has a limit.
  while (running_ && changed_.WaitUntil(mutex_, latest)) {
  }
}

}  // namespace sok
