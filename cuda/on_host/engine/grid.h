// A running launch: concurrent blocks, in an order that the seed determines.
#ifndef SOK_CUDA_ON_HOST_ENGINE_GRID_H_
#define SOK_CUDA_ON_HOST_ENGINE_GRID_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cuda/on_host/engine/block.h"
#include "cuda/on_host/engine/sanitizers.h"
#include "cuda/on_host/engine/schedule.h"
#include "cuda_on_host/engine.h"

namespace sok::on_host {

// The host threads on which resident blocks run, reused from launch to launch.

// Runs `work` on an idle thread, or on a new one. Thread-safe.
void RunOnSlotThread(std::function<void()> work);

struct LaunchShape {
  dim3 grid, block;
  size_t dynamic_shared_bytes = 0;
  bool early = false;  // may start before the kernel before it has ended
};

// ThreadSanitizer's threads for the CUDA threads of a stream. Streams do not share them, because to
// ThreadSanitizer everything that one thread does is ordered.
class TsanThreads {
 public:
  TsanThreads() = default;
  TsanThreads(const TsanThreads&) = delete;
  TsanThreads& operator=(const TsanThreads&) = delete;
  ~TsanThreads() { Clear(); }
  void Clear() {
    for (TsanThread thread : spare_) DestroyTsanThread(thread);
    spare_.clear();
  }
  TsanThread Take() {
    if (!HasTsan()) return nullptr;
    if (spare_.empty()) return CreateTsanThread();
    const TsanThread thread = spare_.back();
    spare_.pop_back();
    return thread;
  }
  void Return(TsanThread thread) {
    if (thread != nullptr) spare_.push_back(thread);
  }

 private:
  std::vector<TsanThread> spare_;
};

// Each resident block has a host thread. Only one of these runs at a time: the one that holds the baton. So a
// launch is one sequence of steps. All members but Run must be called by the thread that holds the baton.
class Grid {
 public:
  Grid(const LaunchShape& shape, const KernelCall& call, TsanThreads* tsan_threads);
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  // Runs all blocks; one of them on the calling thread.
  void Run();

  // Counts a step of the block in this slot, and sometimes switches to another block.
  void Step(int slot);

  const LaunchShape& shape() const { return shape_; }
  const KernelCall& call() const { return call_; }
  const Schedule& schedule() const { return schedule_; }
  Random& random() { return random_; }
  TsanThreads& tsan_threads() { return *tsan_threads_; }
  TsanOrder& begin() { return begin_; }
  TsanOrder& end() { return end_; }
  // One in this many atomics (memory accesses) is a switch point; 0: none.
  uint64_t atomics_per_switch() const { return atomics_per_switch_; }
  uint64_t accesses_per_switch() const { return accesses_per_switch_; }
  bool IsStaticImage(uintptr_t address) const;
  // Records that a block uses an atomic of block scope; false if another block did.
  bool NoteBlockScope(const void* address, uint64_t block);

 private:
  void ChooseOrder();
  uint3 IndexOf(uint64_t block) const;
  int NumSlots() const;
  void RunSlot(int slot);
  void WaitForBaton(int slot);
  void PassBaton(int slot);

  const LaunchShape shape_;
  const KernelCall& call_;
  const Schedule schedule_;
  TsanThreads* const tsan_threads_;
  Random random_;
  TsanOrder begin_, end_;
  int64_t steps_ = 0, passes_ = 0, steps_until_pass_ = 1, max_steps_between_passes_ = 1;
  uint64_t atomics_per_switch_ = 0, accesses_per_switch_ = 0;
  std::vector<uint32_t> order_;  // of blocks; empty: in order
  uint64_t num_blocks_ = 0, next_block_ = 0;
  std::vector<Range> images_;
  std::unordered_map<const void*, uint64_t> block_scopes_;

  std::mutex mutex_;
  struct Slot {
    std::condition_variable turn;
    bool alive = true;
  };
  std::vector<std::unique_ptr<Slot>> slots_;
  int turn_ = 0;
  int num_alive_ = 0;
  std::condition_variable all_done_;
};

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_GRID_H_
