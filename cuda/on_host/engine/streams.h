// Streams as queues of work. Work runs only when something waits for it, on the thread that waits. This is as
// late as CUDA allows, so the results of work that nobody waited for are missing. The seed determines which
// of several streams runs next.
//
// The null stream is CUDA's legacy default stream: its work comes after all work that was enqueued on
// blocking streams before it, and before all that is enqueued on them later.
#ifndef SOK_CUDA_ON_HOST_ENGINE_STREAMS_H_
#define SOK_CUDA_ON_HOST_ENGINE_STREAMS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/on_host/engine/grid.h"
#include "cuda/on_host/engine/sanitizers.h"
#include "cuda/on_host/engine/schedule.h"
#include "cuda_on_host/runtime_api.h"

namespace sok::on_host {

// A point in a stream. When it is done, all work enqueued before it has run.
struct Mark {
  CUstream_st* stream;
  bool done = false;
  TsanOrder order;
  std::chrono::steady_clock::time_point time;  // when it was done
};
using MarkPtr = std::shared_ptr<Mark>;

// While it lives, ThreadSanitizer sees the calling thread as the stream. The engine's own locks are never
// taken meanwhile: they would order streams that nothing in the program orders.
class AsStream {
 public:
  explicit AsStream(CUstream_st* stream);
  ~AsStream();
  AsStream(const AsStream&) = delete;
  AsStream& operator=(const AsStream&) = delete;

 private:
  const TsanThread outside_;
};

using Work = std::function<void(CUstream_st* stream)>;

}  // namespace sok::on_host

// The mutex of StreamQueues guards all members, except those that only the running work uses.
class CUstream_st {
 public:
  explicit CUstream_st(bool is_blocking) : is_blocking(is_blocking) {}

  struct Item {
    int64_t number;  // in the order of calls
    sok::on_host::Work work;
    std::vector<sok::on_host::MarkPtr> after;
    sok::on_host::MarkPtr done;
    std::shared_ptr<sok::on_host::TsanOrder> enqueued;
  };

  const bool is_blocking;
  bool is_destroyed = false;
  std::deque<Item> items;
  sok::on_host::MarkPtr last;  // of the last work enqueued here; null if there is none
  // Used by the running work.
  const sok::on_host::TsanThread tsan = sok::on_host::CreateTsanThread();
  sok::on_host::TsanThreads tsan_threads;
};

class CUevent_st {
 public:
  explicit CUevent_st(bool has_time) : has_time(has_time) {}

  const bool has_time;
  bool is_destroyed = false;
  sok::on_host::MarkPtr recorded;  // null until cudaEventRecord
};

namespace sok::on_host {

// Thread-safe.
class StreamQueues {
 public:
  static StreamQueues& Get();

  CUstream_st* Create(bool is_blocking);
  // The stream of a handle; null if it is none, or destroyed.
  CUstream_st* Find(cudaStream_t handle);
  void Destroy(CUstream_st* stream);

  // Enqueues work after everything in the stream and after the marks `after`, which may contain nulls.
  MarkPtr Enqueue(CUstream_st* stream, Work work, std::vector<MarkPtr> after = {});
  MarkPtr Last(CUstream_st* stream);
  // Runs work until the mark is done; at once if it is null.
  void WaitFor(const MarkPtr& mark);
  void WaitForAll();
  // Whether the mark is done. If not, runs some work, so that polling makes progress.
  bool IsDone(const MarkPtr& mark);
  int64_t Pending();
  // Whether the calling thread runs a function of cudaLaunchHostFunc, which must not use CUDA.
  static bool InHostFunction();
  static void CallHostFunction(CUstream_st* stream, cudaHostFn_t function, void* data);

 private:
  StreamQueues();
  static bool IsReady(const CUstream_st& stream);
  // A stream whose next item can run; with Order::kInOrder one that `target`, unless null, waits for. Null if
  // all streams are empty.
  CUstream_st* PickStream(const Mark* target);
  static CUstream_st* NextTowards(const Mark& target);
  void RunNext(CUstream_st* stream, std::unique_lock<std::mutex>* lock);
  void RunUntilDone(const Mark& mark);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;  // the null stream first; none is ever removed
  int64_t next_number_ = 0;
  bool is_running_ = false;
  uint64_t schedule_number_ = 0;  // for which random_ was seeded
  Random random_{0};
};

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_STREAMS_H_
