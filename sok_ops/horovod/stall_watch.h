#ifndef SOK_SOK_OPS_HOROVOD_STALL_WATCH_H_
#define SOK_SOK_OPS_HOROVOD_STALL_WATCH_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "sok_ops/horovod/alltoall.h"

namespace sok {

// What a rank reports to the others in a round of the stall watch (stall_watch.h).
struct Waiting {
  int64_t period_ms = 0;           // this rank's time between rounds; 0: no watch
  bool stuck = false;              // it waits, and no exchange has begun or ended for several rounds
  std::vector<std::string> names;  // the exchanges that it waits for, in any order
};

// Converts a rank's report to words, and back. Decode() fails on words that Encode() did not write.
std::vector<int64_t> Encode(const Waiting& waiting);
StatusOr<Waiting> Decode(Span<const int64_t> words);

// Checks the reports of all ranks of one round, in order of rank. FailedPrecondition if every rank is stuck
// and no exchange is awaited by all of them; the message says which rank waits for which exchange. OK
// otherwise. All ranks get the same result.
Status CheckForDeadlock(const std::vector<Waiting>& ranks);

// An exchange under way, as the watch sees it.
class WatchedExchange {
 public:
  virtual ~WatchedExchange() = default;
  virtual const std::string& name() const = 0;
  // Ends the exchange with an error unless it has ended already. Any thread may call it.
  virtual void FailStalled(const Status& status) = 0;
};

// Detects ranks that wait for each other, and ends their exchanges with an error that says which rank waits
// for which exchange. Without it, ranks that run different programs would wait forever.
//
// How: a thread of every process takes part in rounds. A round is an alltoall with a name of its own; the
// next round starts a quarter of SOK_STALL_SECONDS later. In a round each rank reports the exchanges that it
// waits for. It also reports that it is stuck if it waits and no exchange has begun or ended since the fourth
// round before. All ranks evaluate the same reports: there is a deadlock if all ranks are stuck and no
// exchange is awaited by all of them.
//
// Why there are no false alarms: no rank leaves round k - 1 before all ranks have entered it. What a stuck
// rank reports in round k was already so when it entered round k - 1, and has not changed in between. So all
// reports of stuck ranks held at one moment: when the last rank entered round k - 1. This does not depend on
// clocks. Ranks may enter a round at different times, and a process that was suspended counts as having
// waited for one quarter, however long it was suspended.
// A rank that is slow outside of its exchanges (reads data, saves, evaluates, compiles) waits for nothing, so
// it is not stuck, and the others wait for it. A slow transfer is an exchange that all ranks wait for. If one
// part of a step is slow while another part waits for an exchange, the rank looks stuck. That raises an alarm
// only if every rank looks stuck for SOK_STALL_SECONDS, in different exchanges.
//
// All ranks run rounds all the time, not only while they wait, because a rank cannot withdraw from a round.
// If only waiting ranks entered a round, one that entered alone would stay in it after the job has recovered,
// and Horovod would report the job as stalled, or end it after HOROVOD_STALL_SHUTDOWN_TIME_SECONDS. The cost
// is a few words, four times per SOK_STALL_SECONDS.
//
// Rank 0's SOK_STALL_SECONDS is used on all ranks, so launchers that do not pass on the environment do no
// harm. The watch ends with Horovod and starts again with the next exchange.
//
// Thread-safe.
class StallWatch {
 public:
  // Enqueues an alltoall, as EnqueueAlltoall() does. All enqueued alltoalls must have ended before the watch
  // is destroyed.
  using Queue = std::function<Status(const std::string& name, std::shared_ptr<Alltoall> alltoall)>;

  explicit StallWatch(Queue queue) : queue_(std::move(queue)) {}
  ~StallWatch() { Stop(); }
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // This process's SOK_STALL_SECONDS (60 if unset) as the time between rounds; 0 for no watch.
  static StatusOr<int64_t> PeriodMs();

  // To be called when an exchange begins; the first one starts the watch. `period_ms` is this rank's.
  void Begin(std::shared_ptr<WatchedExchange> exchange, int ranks, int64_t period_ms);
  // To be called when the exchange has succeeded or failed.
  void End(const WatchedExchange* exchange);
  // Ends the watch; Begin() does not start it again.
  void Stop();

 private:
  class Round;

  void Run(int ranks, int64_t own_period_ms);
  Waiting Sample(int64_t own_period_ms);
  StatusOr<std::vector<Waiting>> RunRound(int ranks, const Waiting& own);
  void FailAll(const Status& status);

  const Queue queue_;
  Mutex mutex_;
  CondVar changed_;  // signals that a round or the thread has ended, or that stopping_ was set
  std::map<const WatchedExchange*, std::shared_ptr<WatchedExchange>> exchanges_ SOK_GUARDED_BY(mutex_);
  int64_t changes_ SOK_GUARDED_BY(mutex_) = 0;          // exchanges begun plus exchanges ended
  int64_t sampled_changes_ SOK_GUARDED_BY(mutex_) = 0;  // changes_ at the last round
  int unchanged_rounds_ SOK_GUARDED_BY(mutex_) = 0;     // rounds in a row without a change, while waiting
  bool running_ SOK_GUARDED_BY(mutex_) = false;
  bool off_ SOK_GUARDED_BY(mutex_) = false;       // rank 0's period is 0
  bool stopping_ SOK_GUARDED_BY(mutex_) = false;  // the process exits
};

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_STALL_WATCH_H_
