#include "cuda/on_host/engine/slot_threads.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "cuda/on_host/engine/sanitizers.h"

namespace sok::on_host {
namespace {

// Never destroyed: its threads wait until the process ends.
class SlotThreads {
 public:
  void Run(std::function<void()> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_.push_back(std::move(work));
    if (idle_ < static_cast<int>(work_.size())) {
      std::thread([this] { Loop(); }).detach();
      ++idle_;
    }
    changed_.notify_one();
  }

 private:
  void Loop() {
    BirthOfThisThread();
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !work_.empty(); });
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      --idle_;
      lock.unlock();
      work();
      lock.lock();
      ++idle_;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  int idle_ = 0;  // threads that wait, or are about to
};

}  // namespace

void RunOnSlotThread(std::function<void()> work) {
  static auto& threads = *new SlotThreads();
  threads.Run(std::move(work));
}

}  // namespace sok::on_host
