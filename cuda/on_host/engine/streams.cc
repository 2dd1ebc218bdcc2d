#include "cuda/on_host/engine/streams.h"

#include <utility>

#include "cuda/on_host/engine/device_memory.h"

namespace sok::on_host {
namespace {

__thread bool in_host_function;

// Counts the time until it is destroyed as that of the device.
class DeviceTime {
 public:
  DeviceTime() : began_(CountRunTime(0)) {}
  ~DeviceTime() { CountRunTime(began_); }

 private:
  const int64_t began_;
};

}  // namespace

AsStream::AsStream(CUstream_st* stream) : outside_(CurrentTsanThread()) { SwitchTsanThread(stream->tsan); }
AsStream::~AsStream() { SwitchTsanThread(outside_); }

StreamQueues& StreamQueues::Get() {
  static auto& queues = *new StreamQueues();
  return queues;
}

StreamQueues::StreamQueues() { streams_.push_back(std::make_unique<CUstream_st>(true)); }

CUstream_st* StreamQueues::Create(bool is_blocking) {
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.push_back(std::make_unique<CUstream_st>(is_blocking));
  return streams_.back().get();
}

CUstream_st* StreamQueues::Find(cudaStream_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (handle == nullptr) return streams_.front().get();
  for (size_t s = 1; s < streams_.size(); ++s) {
    if (streams_[s].get() == handle) return handle->is_destroyed ? nullptr : handle;
  }
  return nullptr;
}

void StreamQueues::Destroy(CUstream_st* stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  stream->is_destroyed = true;
  if (stream->items.empty() && !is_running_) stream->tsan_threads.Clear();
}

MarkPtr StreamQueues::Enqueue(CUstream_st* stream, Work work, std::vector<MarkPtr> after) {
  const MarkPtr done = std::make_shared<Mark>();
  done->stream = stream;
  auto enqueued = std::make_shared<TsanOrder>();
  enqueued->Release();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    CUstream_st* const null_stream = streams_.front().get();
    if (stream == null_stream) {
      for (const auto& other : streams_) {
        if (other->is_blocking && other.get() != stream) after.push_back(other->last);
      }
    } else if (stream->is_blocking) {
      after.push_back(null_stream->last);
    }
    stream->items.push_back({next_number_++, std::move(work), std::move(after), done, std::move(enqueued)});
    stream->last = done;
  }
  if (CurrentSchedule().streams == Streams::kEager) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!done->done) {
      if (is_running_) {
        changed_.wait(lock);
      } else {
        RunNext(NextTowards(*done), &lock);
      }
    }
  }
  return done;
}

MarkPtr StreamQueues::Last(CUstream_st* stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stream->last;
}

// Opens and closes device memory once for all items, because closing is slow.
void StreamQueues::RunUntilDone(const Mark& mark) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!mark.done) {
    if (is_running_) {
      changed_.wait(lock);
      continue;
    }
    const DeviceTime time;
    const DeviceAccess access;
    while (!mark.done && !is_running_) RunNext(PickStream(&mark), &lock);
  }
}

void StreamQueues::WaitFor(const MarkPtr& mark) {
  if (mark == nullptr) return;
  RunUntilDone(*mark);
  mark->order.Acquire();
}

void StreamQueues::WaitForAll() {
  std::vector<MarkPtr> last;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    for (const auto& stream : streams_) last.push_back(stream->last);
    while (true) {
      if (is_running_) {
        changed_.wait(lock);
        continue;
      }
      CUstream_st* const next = PickStream(nullptr);
      if (next == nullptr) break;
      const DeviceTime time;
      RunNext(next, &lock);
    }
  }
  for (const MarkPtr& mark : last) WaitFor(mark);
}

bool StreamQueues::IsDone(const MarkPtr& mark) {
  if (mark == nullptr) return true;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!mark->done) {
      const DeviceTime time;
      if (!is_running_) RunNext(PickStream(mark.get()), &lock);
      return false;
    }
  }
  mark->order.Acquire();
  return true;
}

int64_t StreamQueues::Pending() {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t pending = 0;
  for (const auto& stream : streams_) pending += static_cast<int64_t>(stream->items.size());
  return pending;
}

bool StreamQueues::InHostFunction() { return in_host_function; }

void StreamQueues::CallHostFunction(CUstream_st* stream, cudaHostFn_t function, void* data) {
  const NoDeviceAccess no_device_access;
  const AsStream as_stream(stream);
  in_host_function = true;
  function(data);
  in_host_function = false;
}

// ---- Which work runs. ----

bool StreamQueues::IsReady(const CUstream_st& stream) {
  if (stream.items.empty()) return false;
  for (const MarkPtr& mark : stream.items.front().after) {
    if (mark != nullptr && !mark->done) return false;
  }
  return true;
}

// Items wait only for items that were enqueued before them, so the recursion ends.
CUstream_st* StreamQueues::NextTowards(const Mark& target) {
  CUstream_st* const stream = target.stream;
  for (const MarkPtr& mark : stream->items.front().after) {
    if (mark != nullptr && !mark->done) return NextTowards(*mark);
  }
  return stream;
}

CUstream_st* StreamQueues::PickStream(const Mark* target) {
  const Schedule schedule = CurrentSchedule();
  if (schedule_number_ != ScheduleNumber()) {
    schedule_number_ = ScheduleNumber();
    random_ = Random(schedule.seed);
  }
  if (schedule.order == Order::kInOrder && target != nullptr) return NextTowards(*target);
  std::vector<CUstream_st*> ready;
  for (const auto& stream : streams_) {
    if (IsReady(*stream)) ready.push_back(stream.get());
  }
  if (ready.empty()) return nullptr;
  if (schedule.order == Order::kRandom) return ready[random_.Below(ready.size())];
  const bool latest = schedule.order == Order::kAdversarial;
  CUstream_st* picked = ready.front();
  for (CUstream_st* stream : ready) {
    if ((stream->items.front().number > picked->items.front().number) == latest) picked = stream;
  }
  return picked;
}

void StreamQueues::RunNext(CUstream_st* stream, std::unique_lock<std::mutex>* lock) {
  CUstream_st::Item item = std::move(stream->items.front());
  stream->items.pop_front();
  is_running_ = true;
  lock->unlock();
  {
    const AsStream as_stream(stream);
    item.enqueued->Acquire();
    for (const MarkPtr& mark : item.after) {
      if (mark != nullptr) mark->order.Acquire();
    }
  }
  item.work(stream);
  {
    const AsStream as_stream(stream);
    item.work = nullptr;
    item.done->order.Release();
  }
  lock->lock();
  item.done->time = std::chrono::steady_clock::now();
  item.done->done = true;
  is_running_ = false;
  if (stream->is_destroyed && stream->items.empty()) stream->tsan_threads.Clear();
  changed_.notify_all();
}

}  // namespace sok::on_host
