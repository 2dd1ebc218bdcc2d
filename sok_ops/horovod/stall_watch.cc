#include "sok_ops/horovod/stall_watch.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

namespace sok {
namespace {

constexpr int64_t kWord = sizeof(int64_t);
constexpr size_t kMaxListed = 8;  // names or ranks in one list of an error message

int64_t WordsFor(int64_t bytes) { return (bytes + kWord - 1) / kWord; }

Status Malformed() { return Internal("a rank sent words that are not a report of a stall watch"); }

// "'a', 'b' and 3 more"
template <typename Items, typename Write>
std::string List(const Items& items, Write write) {
  std::string text;
  size_t listed = 0;
  for (const auto& item : items) {
    if (listed == kMaxListed) return StrCat(text, " and ", items.size() - listed, " more");
    if (listed++ > 0) text += ", ";
    text += write(item);
  }
  return text;
}

}  // namespace

std::vector<int64_t> Encode(const Waiting& waiting) {
  std::vector<int64_t> words = {waiting.period_ms, waiting.stuck, static_cast<int64_t>(waiting.names.size())};
  for (const std::string& name : waiting.names) {
    words.push_back(name.size());
    const size_t begin = words.size();
    words.resize(begin + WordsFor(name.size()));
    std::memcpy(words.data() + begin, name.data(), name.size());
  }
  return words;
}

StatusOr<Waiting> Decode(Span<const int64_t> words) {
  if (words.size() < 3 || words[2] < 0) return Malformed();
  Waiting waiting;
  waiting.period_ms = words[0];
  waiting.stuck = words[1] != 0;
  int64_t next = 3;
  for (int64_t i = 0; i < words[2]; ++i) {
    if (next >= words.size()) return Malformed();
    const int64_t bytes = words[next++];
    if (bytes < 0 || bytes > (words.size() - next) * kWord) return Malformed();
    waiting.names.emplace_back(reinterpret_cast<const char*>(words.data() + next), bytes);
    next += WordsFor(bytes);
  }
  return waiting;
}

Status CheckForDeadlock(const std::vector<Waiting>& ranks) {
  std::set<std::string> awaited_by_all;
  std::map<std::set<std::string>, std::vector<size_t>> ranks_by_names;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].stuck) return OkStatus();
    const std::set<std::string> names(ranks[rank].names.begin(), ranks[rank].names.end());
    if (rank == 0) awaited_by_all = names;
    for (auto name = awaited_by_all.begin(); name != awaited_by_all.end();) {
      name = names.count(*name) == 0 ? awaited_by_all.erase(name) : std::next(name);
    }
    ranks_by_names[names].push_back(rank);
  }
  if (!awaited_by_all.empty()) return OkStatus();

  std::vector<std::pair<std::vector<size_t>, std::set<std::string>>> sides;
  for (const auto& [names, members] : ranks_by_names) sides.emplace_back(members, names);
  std::sort(sides.begin(), sides.end());
  std::string who;
  for (const auto& [members, names] : sides) {
    if (!who.empty()) who += "; ";
    who += members.size() == 1 ? "rank " : "ranks ";
    who += List(members, [](size_t rank) { return std::to_string(rank); });
    who += members.size() == 1 ? " waits for " : " wait for ";
    who += List(names, [](const std::string& name) { return "'" + name + "'"; });
  }
  return FailedPrecondition("The ranks wait for each other: ", who,
                            ". All ranks must run the same lookups and the same steps.");
}

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
      SOK_ASSIGN_OR_RETURN(Waiting state, Decode(Span<const int64_t>(received_).subspan(begin, words)));
      states.push_back(std::move(state));
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
  try {
    std::thread(&StallWatch::Run, this, ranks, period_ms).detach();
    running_ = true;
  } catch (const std::system_error&) {  // no thread can be had; the next exchange tries again
  }
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
