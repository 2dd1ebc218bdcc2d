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
#include "cc/base/status.h"
#include "cc/base/thread_annotations.h"
#include "sok_ops/horovod/alltoall.h"
#include "sok_ops/horovod/stall_round.h"

namespace sok {

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
// How: a thread of every process takes part in a round, an alltoall of its own name, and waits a quarter of
// SOK_STALL_SECONDS until the next one. In a round each rank tells which exchanges it waits for, and that it
// is stuck if these have not changed, with none begun and none ended, since the round four before. All ranks
// then judge the same states: they are in deadlock if all are stuck and no exchange is awaited by all of
// them.
//
// Why no false alarm: every rank took part in round k - 1 before any rank could leave it, and takes part in
// round k later. What a rank says in round k, if it is stuck, was so when it took part in round k - 1, and
// unchanged in between. So at the moment at which the last rank entered round k - 1 all these states held
// together: they are one snapshot and not hearsay of different times. Ranks may enter rounds at any distance,
// and a process that was suspended counts as having waited for one quarter, not for the time that passed on
// the clock.
// A rank that is slow outside of its exchanges (reads data, saves, evaluates, compiles) waits for nothing: it
// is not stuck, and the others wait for it. A transfer that takes long is one that all ranks wait for. A rank
// that is slow in a part of its step while another part waits for an exchange looks stuck; that is an alarm
// only if each of the ranks is so for SOK_STALL_SECONDS, in different exchanges.
//
// Rounds are run always and not only by those who wait: a rank's part in a round cannot be withdrawn, and one
// that waited for the others would make Horovod report, or by HOROVOD_STALL_SHUTDOWN_TIME_SECONDS end, a job
// that has recovered since. A round moves some words four times per SOK_STALL_SECONDS.
//
// Rank 0's SOK_STALL_SECONDS counts for all, so launchers that do not pass the environment on do no harm. The
// watch ends with Horovod and starts again with the next exchange.
//
// Thread-safe.
class StallWatch {
 public:
  // What EnqueueAlltoall() is. Whatever was enqueued must be done with before the watch is destroyed.
  using Queue = std::function<Status(const std::string& name, std::shared_ptr<Alltoall> alltoall)>;

  explicit StallWatch(Queue queue) : queue_(std::move(queue)) {}
  ~StallWatch() { Stop(); }
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // This process's SOK_STALL_SECONDS (60 if unset) as the time between rounds; 0 for no watch.
  static StatusOr<int64_t> PeriodMs();

  // An exchange begins; the first one starts the watch. `period_ms` is this rank's.
  void Begin(std::shared_ptr<WatchedExchange> exchange, int ranks, int64_t period_ms);
  // It has ended, in whatever way.
  void End(const WatchedExchange* exchange);
  // Ends the watch for good.
  void Stop();

 private:
  class Round;

  void Run(int ranks, int64_t own_period_ms);
  Waiting Sample(int64_t own_period_ms);
  StatusOr<std::vector<Waiting>> RunRound(int ranks, const Waiting& own);
  void FailAll(const Status& status);

  const Queue queue_;
  Mutex mutex_;
  CondVar changed_;  // a round ended, the thread ended, or it shall
  std::map<const WatchedExchange*, std::shared_ptr<WatchedExchange>> exchanges_ SOK_GUARDED_BY(mutex_);
  int64_t changes_ SOK_GUARDED_BY(mutex_) = 0;          // exchanges that began or ended, ever
  int64_t sampled_changes_ SOK_GUARDED_BY(mutex_) = 0;  // changes_ at the last round
  int unchanged_rounds_ SOK_GUARDED_BY(mutex_) = 0;     // since then, while waiting
  bool running_ SOK_GUARDED_BY(mutex_) = false;
  bool off_ SOK_GUARDED_BY(mutex_) = false;       // rank 0 wants no watch
  bool stopping_ SOK_GUARDED_BY(mutex_) = false;  // the process exits
};

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_STALL_WATCH_H_
