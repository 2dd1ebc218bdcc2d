// A running block: its CUDA threads are fibers of one host thread.
#ifndef SOK_CUDA_ON_HOST_ENGINE_BLOCK_H_
#define SOK_CUDA_ON_HOST_ENGINE_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/on_host/engine/modules.h"
#include "cuda/on_host/engine/sanitizers.h"
#include "cuda_on_host/engine.h"
#include "cuda_on_host/warp.h"

// Other processors, and builds with -DSOK_ON_HOST_UCONTEXT, use the system's functions, which are slower.
#if defined(__x86_64__) && !defined(SOK_ON_HOST_UCONTEXT)
#define SOK_ON_HOST_ASSEMBLY 1
#else
#include <ucontext.h>
#endif

namespace sok::on_host {

// Stacks that a thread switches between.

// Memory for a stack, with a page below it that is never mapped. Comes from a pool and returns to it, because
// a launch has many short threads.
class Stack {
 public:
  static Stack Take();
  void Return();
  static size_t bytes();
  char* bottom() const { return bottom_; }
  // Whether the address is in the page below.
  bool IsBelow(const void* address) const;

 private:
  explicit Stack(char* bottom) : bottom_(bottom) {}
  char* bottom_;
};

// The state of a thread when it left a stack.
class Context {
 public:
  // The first SwitchTo() to this context calls `entry`, which must not return, on the stack.
  void Prepare(const Stack& stack, void (*entry)());
  // Saves the caller's state in this context, and continues where `other` was left. Returns when something
  // switches back.
  void SwitchTo(Context* other);

 private:
#if defined(SOK_ON_HOST_ASSEMBLY)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_ = {};
#endif
};

constexpr int kWarpSize = 32;
constexpr int kMaxThreadsOfBlock = 1024;
constexpr size_t kMaxDynamicShared = size_t{227} << 10;  // of sm_90

class Block;
class Grid;

enum class FiberState { kReady, kAtBarrier, kAtCollective, kDone };

// One CUDA thread.
struct Fiber {
  explicit Fiber(Stack stack) : stack(stack) {}

  Block* block = nullptr;
  int index = 0;  // in the block
  uint3 thread = {};
  FiberState state = FiberState::kReady;
  Context context;
  Stack stack;
  TsanThread tsan = nullptr;
  void* asan_fake_stack = nullptr;
  int64_t priority = 0;  // for the adversarial order
  int64_t run_length = 0;
  bool may_access = true;  // device memory: kernels before this one have ended

  // Where it waits, the value that it passes, and the result.
  Place place = {};
  BlockVote vote = BlockVote::kNone;
  Collective kind = Collective::kSync;
  uint32_t mask = 0;
  uint64_t value = 0;
  int source = 0;
};

// A slot for a resident block, with the stacks of its threads and its shared memory: blocks run in it one
// after another. All members are called by the slot's host thread.
class Block {
 public:
  Block(Grid* grid, int slot);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void Run(uint3 index);

  // The CUDA thread that runs on the calling host thread; null outside kernels.
  static Fiber* Current();

  // Called in fibers.
  void SwitchPoint();
  void AccessPoint();  // a rarer one, at accesses to memory that threads share
  int Barrier(BlockVote vote, bool predicate, Place place);
  uint64_t WarpCollective(Collective kind, uint32_t mask, uint64_t value, int source, Place place);

  Grid& grid() const { return *grid_; }
  char* dynamic_shared() const { return dynamic_shared_; }
  const ThreadVariables& variables() const { return variables_; }
  // The thread whose stack contains the address; null if none does.
  const Fiber* OwnerOfStack(const void* address) const;
  // Called again after a library was loaded.
  void FindVariables();

 private:
  static void FiberMain();
  [[noreturn]] void RunFiber(Fiber* fiber);
  void Prepare();
  void PoisonShared();
  void MakeReady(Fiber* fiber);
  Fiber* Pick();
  void PutHighestPriorityFirst();
  void Resume(Fiber* fiber);
  void Leave(Fiber* fiber, FiberState state);
  int BarrierResult(BlockVote vote) const;
  bool AllLanesHere(const Fiber& fiber) const;
  void CheckLane(const Fiber& mine, int lane) const;
  void FinishCollective(const Fiber& last);
  [[noreturn]] void ReportStuck() const;

  Grid* const grid_;
  const int slot_;
  TsanOrder& birth_of_host_thread_ = BirthOfThisThread();
  std::vector<Fiber> fibers_;
  std::vector<Fiber*> ready_;  // a ring
  size_t first_ready_ = 0, num_ready_ = 0;
  int num_threads_ = 0, num_at_barrier_ = 0, num_votes_ = 0, num_done_ = 0;
  const Fiber* first_at_barrier_ = nullptr;
  int barrier_result_ = 0;
  int64_t lowest_priority_ = 0;
  ThreadVariables variables_;
  char* dynamic_shared_ = nullptr;
  char* dynamic_shared_memory_ = nullptr;

  Context scheduler_;
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
  TsanThread scheduler_tsan_ = nullptr;
  // Threads are ordered after those of the previous block in this slot, which used the same shared memory,
  // but not among each other. So each kind of order alternates between two objects.
  int64_t num_blocks_ = 0, num_barriers_ = 0;
  TsanOrder block_ended_[2], barrier_[2];
  // By the lowest lane of a mask, so that groups of lanes in a warp are not ordered.
  struct WarpOrders {
    int64_t num_syncs = 0;
    TsanOrder order[2];
  };
  WarpOrders warp_orders_[kMaxThreadsOfBlock];
};

const char* NameOf(Collective kind);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_BLOCK_H_
