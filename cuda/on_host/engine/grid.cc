#include "cuda/on_host/engine/grid.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "cuda/on_host/engine/block.h"
#include "cuda/on_host/engine/device_memory.h"
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

Grid::Grid(const LaunchShape& shape, const KernelCall& call, TsanThreads* tsan_threads)
    : shape_(shape),
      call_(call),
      schedule_(CurrentSchedule()),
      tsan_threads_(tsan_threads),
      random_(schedule_.seed * 1000003 + NextLaunchNumber()),
      num_blocks_(uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z),
      images_(StaticImages()) {
  ChooseOrder();
}

// How often threads and blocks are switched differs from launch to launch: some mistakes show only with many
// switches, others only if a thread runs for long undisturbed.
void Grid::ChooseOrder() {
  if (schedule_.order == Order::kInOrder) {
    max_steps_between_passes_ = 4096;
    return;
  }
  constexpr uint64_t kAtomics[] = {1, 2, 4, 16};
  constexpr uint64_t kAccesses[] = {0, 16, 64, 256};
  constexpr int64_t kSteps[] = {1, 8, 64, 512};
  atomics_per_switch_ = kAtomics[random_.Below(std::size(kAtomics))];
  accesses_per_switch_ = kAccesses[random_.Below(std::size(kAccesses))];
  max_steps_between_passes_ = kSteps[random_.Below(std::size(kSteps))];
  constexpr uint64_t kMostShuffled = uint64_t{1} << 20;
  if (num_blocks_ > kMostShuffled) return;
  order_.resize(num_blocks_);
  std::iota(order_.begin(), order_.end(), 0u);
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_.Below(i)]);
}

int Grid::NumSlots() const {
  return static_cast<int>(std::min(num_blocks_, static_cast<uint64_t>(schedule_.resident_blocks)));
}

uint3 Grid::IndexOf(uint64_t block) const {
  const uint64_t x = shape_.grid.x, y = shape_.grid.y;
  return {static_cast<unsigned>(block % x), static_cast<unsigned>(block / x % y),
          static_cast<unsigned>(block / x / y)};
}

void Grid::Run() {
  num_alive_ = NumSlots();
  for (int s = 0; s < num_alive_; ++s) slots_.push_back(std::make_unique<Slot>());
  begin_.Release();
  for (int s = 1; s < static_cast<int>(slots_.size()); ++s) RunOnSlotThread([this, s] { RunSlot(s); });
  RunSlot(0);
  {
    std::unique_lock<std::mutex> lock(mutex_);
    all_done_.wait(lock, [this] { return num_alive_ == 0; });
  }
  end_.Acquire();
  CountSteps(steps_);
}

void Grid::RunSlot(int slot) {
  PrepareForFaults();
  WaitForBaton(slot);
  {
    const DeviceAccess access;
    Block block(this, slot);
    while (next_block_ < num_blocks_) {
      const uint64_t next = next_block_++;
      block.Run(IndexOf(order_.empty() ? next : order_[next]));
    }
  }
  slots_[slot]->alive = false;
  PassBaton(slot);
  // The last access to this grid, which Run may destroy from here on.
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--num_alive_ == 0) all_done_.notify_all();
}

void Grid::WaitForBaton(int slot) {
  std::unique_lock<std::mutex> lock(mutex_);
  slots_[slot]->turn.wait(lock, [&] { return turn_ == slot; });
}

void Grid::PassBaton(int slot) {
  const int num_slots = static_cast<int>(slots_.size());
  int next = schedule_.order == Order::kInOrder ? slot + 1 : static_cast<int>(random_.Below(num_slots));
  int tried = 0;
  for (; tried < num_slots && !slots_[next % num_slots]->alive; ++tried) ++next;
  if (tried == num_slots || next % num_slots == slot) return;
  Slot& to = *slots_[next % num_slots];
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    turn_ = next % num_slots;
  }
  to.turn.notify_one();
}

void Grid::Step(int slot) {
  if (++steps_ > schedule_.max_steps) {
    Report({}, "a launch that does not come to an end: %lld steps", static_cast<long long>(steps_));
  }
  if (slots_.size() == 1 || --steps_until_pass_ > 0) return;
  // Waking a thread takes longer than a thousand steps, so a long launch does it less often.
  constexpr int64_t kPassesPerHalving = 100;
  const int64_t longest = max_steps_between_passes_ << std::min<int64_t>(++passes_ / kPassesPerHalving, 10);
  steps_until_pass_ = schedule_.order == Order::kInOrder
                          ? longest
                          : 1 + static_cast<int64_t>(random_.Below(2 * static_cast<uint64_t>(longest)));
  PassBaton(slot);
  WaitForBaton(slot);
}

bool Grid::IsStaticImage(uintptr_t address) const {
  return std::any_of(images_.begin(), images_.end(), [&](const Range& image) { return image.Has(address); });
}

bool Grid::NoteBlockScope(const void* address, uint64_t block) {
  return block_scopes_.emplace(address, block).first->second == block;
}

}  // namespace sok::on_host
