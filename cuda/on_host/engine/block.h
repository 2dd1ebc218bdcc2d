// A running block: its CUDA threads are fibers of one host thread.
#ifndef SOK_CUDA_ON_HOST_ENGINE_BLOCK_H_
#define SOK_CUDA_ON_HOST_ENGINE_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/on_host/engine/sanitizers.h"
#include "cuda_on_host/engine.h"
#include "cuda_on_host/warp.h"

namespace sok::on_host {

// What the program and its libraries contain: which variables are __shared__, and the names of functions.

struct Range {
  uintptr_t begin = 0, end = 0;
  bool Has(uintptr_t address) const { return address - begin < end - begin; }
};

// The thread_local variables that a thread sees. A block's __shared__ variables are among those of its host
// thread.
struct ThreadVariables {
  std::vector<Range> segments;  // all thread_local memory, by module
  std::vector<Range> shared;    // the variables known to be __shared__
};

// The variables of the calling thread, while it runs `kernel`. Finds __shared__ variables in the symbol
// table, which has an entry for each thread_local variable of a function: those of the kernel itself, and
// those of functions that occur in .cu files only. A stripped library has no such entries.
ThreadVariables VariablesOfThisThread(const void* kernel);

// Code, constants and global variables of all modules.
std::vector<Range> StaticImages();

// "sok::(anonymous namespace)::Kernel(int*)" or the address if the name is unknown.
std::string FunctionAt(const void* address);

// The line of `address`, as addr2line of the binutils finds it: "cuda/kernel.cu:17", or empty. Starts a
// process, so use it for reports only.
std::string LineAt(const void* address);

}  // namespace sok::on_host

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
constexpr size_t kMaxDynamicShared = size_t{48} << 10;  // unless a kernel asks for more

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
  void Barrier(Place place);
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
  int num_threads_ = 0, num_at_barrier_ = 0, num_done_ = 0;
  const Fiber* first_at_barrier_ = nullptr;
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

// Ends the process when a mistake is found.

// Like Report, but names the code at `code`, for mistakes whose source line is not known.
[[noreturn]] void ReportAt(const void* code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// What a CUDA thread may touch.

enum class Memory { kOwnStack, kGlobal, kShared, kConstant, kForbidden };

// What the CUDA thread may do with the `bytes` bytes at `address`. kForbidden: host memory that is not
// pinned, of another thread, beyond an allocation, or freed.
Memory MemoryOf(const Fiber& fiber, const void* address, size_t bytes);

// A description of kForbidden memory, for reports.
std::string DescribeForbidden(const Fiber& fiber, const void* address);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_BLOCK_H_
