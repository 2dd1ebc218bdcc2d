#include "cuda/on_host/engine/block.h"

#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/on_host/engine/device_memory.h"
#include "cuda/on_host/engine/grid.h"

__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim, gridDim;

namespace sok::on_host {
namespace {

__thread Fiber* current;

// Dynamic shared memory ends at a page that is never mapped, except for padding to its alignment of 16 bytes.
constexpr size_t kSharedPages = (kMaxDynamicShared + kPage - 1) / kPage * kPage;

// Comes from a pool and returns to it, like stacks.
std::mutex shared_mutex;
std::vector<char*>& SharedPool() {
  static auto& pool = *new std::vector<char*>();
  return pool;
}
char* TakeShared() {
  {
    const std::lock_guard<std::mutex> lock(shared_mutex);
    if (!SharedPool().empty()) {
      char* const memory = SharedPool().back();
      SharedPool().pop_back();
      return memory;
    }
  }
  return MapMemory(kSharedPages, kPage);
}
void ReturnShared(char* memory) {
  const std::lock_guard<std::mutex> lock(shared_mutex);
  SharedPool().push_back(memory);
}

}  // namespace

Block::Block(Grid* grid, int slot) : grid_(grid), slot_(slot), dynamic_shared_memory_(TakeShared()) {
  const size_t bytes = (grid->shape().dynamic_shared_bytes + 15) / 16 * 16;
  dynamic_shared_ = dynamic_shared_memory_ + kSharedPages - bytes;
  FindVariables();
}

Block::~Block() {
  for (Fiber& fiber : fibers_) {
    fiber.stack.Return();
    grid_->tsan_threads().Return(fiber.tsan);
  }
  AsanUnpoison(dynamic_shared_memory_, kSharedPages);
  ReturnShared(dynamic_shared_memory_);
}

void Block::FindVariables() { variables_ = VariablesOfThisThread(grid_->call().kernel); }

Fiber* Block::Current() { return current; }

const Fiber* Block::OwnerOfStack(const void* address) const {
  for (const Fiber& fiber : fibers_) {
    const auto offset = static_cast<size_t>(static_cast<const char*>(address) - fiber.stack.bottom());
    if (offset < Stack::bytes()) return &fiber;
  }
  return nullptr;
}

// ---- From the start of a block to its end. ----

void Block::Prepare() {
  const dim3 shape = grid_->shape().block;
  num_threads_ = static_cast<int>(shape.x * shape.y * shape.z);
  fibers_.reserve(num_threads_);
  while (static_cast<int>(fibers_.size()) < num_threads_) {
    fibers_.emplace_back(Stack::Take());
    fibers_.back().tsan = grid_->tsan_threads().Take();
  }
  ready_.resize(num_threads_);
  first_ready_ = num_ready_ = 0;
  num_at_barrier_ = num_done_ = 0;
  lowest_priority_ = 0;
  const bool has_priorities = grid_->schedule().order == Order::kAdversarial;
  for (int t = 0; t < num_threads_; ++t) {
    Fiber& fiber = fibers_[t];
    const auto index = static_cast<unsigned>(t);
    fiber.block = this;
    fiber.index = t;
    fiber.thread = {index % shape.x, index / shape.x % shape.y, index / shape.x / shape.y};
    fiber.context.Prepare(fiber.stack, &Block::FiberMain);
    fiber.asan_fake_stack = nullptr;
    fiber.priority = has_priorities ? static_cast<int64_t>(grid_->random().Below(1 << 20)) : 0;
    fiber.run_length = 0;
    fiber.may_access = !grid_->shape().early;
    MakeReady(&fiber);
  }
  PoisonShared();
}

void Block::PoisonShared() {
  for (const Range& variable : variables_.shared) {
    FillWithPoison(reinterpret_cast<void*>(variable.begin), variable.end - variable.begin);
  }
  const size_t bytes = grid_->shape().dynamic_shared_bytes;
  AsanUnpoison(dynamic_shared_, bytes);
  FillWithPoison(dynamic_shared_, bytes);
  AsanPoison(dynamic_shared_memory_, static_cast<size_t>(dynamic_shared_ - dynamic_shared_memory_));
  AsanPoison(dynamic_shared_ + bytes,
             static_cast<size_t>(dynamic_shared_memory_ + kSharedPages - dynamic_shared_) - bytes);
}

void Block::Run(uint3 index) {
  blockIdx = index;
  blockDim = grid_->shape().block;
  gridDim = grid_->shape().grid;
  Prepare();
  scheduler_tsan_ = CurrentTsanThread();
  ++num_blocks_;
  while (num_done_ < num_threads_) {
    if (num_ready_ == 0) ReportStuck();
    Resume(Pick());
  }
}

void Block::FiberMain() { current->block->RunFiber(current); }

void Block::RunFiber(Fiber* fiber) {
  if (HasAsan()) __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_bytes_);
  birth_of_host_thread_.Acquire();
  grid_->begin().Acquire();
  block_ended_[(num_blocks_ + 1) % 2].Acquire();
  const KernelCall& call = grid_->call();
  call.run(call.kernel, call.arguments.get());
  // It might end before the kernels before it, and the next kernel waits for this one only.
  if (!fiber->may_access) Report({}, "a thread ends that never waits for the kernels before its own");
  block_ended_[num_blocks_ % 2].Release();
  grid_->end().Release();
  ++num_done_;
  Leave(fiber, FiberState::kDone);
  std::abort();  // a fiber that is done is not resumed
}

// ---- Which thread runs next. ----

void Block::MakeReady(Fiber* fiber) {
  fiber->state = FiberState::kReady;
  ready_[(first_ready_ + num_ready_++) % ready_.size()] = fiber;
}

void Block::PutHighestPriorityFirst() {
  size_t highest = 0;
  for (size_t i = 1; i < num_ready_; ++i) {
    const auto at = [&](size_t j) { return ready_[(first_ready_ + j) % ready_.size()]->priority; };
    if (at(i) > at(highest)) highest = i;
  }
  std::swap(ready_[first_ready_], ready_[(first_ready_ + highest) % ready_.size()]);
}

Fiber* Block::Pick() {
  switch (grid_->schedule().order) {
    case Order::kInOrder:
      break;
    case Order::kRandom:
      std::swap(ready_[first_ready_],
                ready_[(first_ready_ + grid_->random().Below(num_ready_)) % ready_.size()]);
      break;
    case Order::kAdversarial:
      PutHighestPriorityFirst();
      break;
  }
  Fiber* const fiber = ready_[first_ready_];
  first_ready_ = (first_ready_ + 1) % ready_.size();
  --num_ready_;
  return fiber;
}

void Block::Resume(Fiber* fiber) {
  current = fiber;
  threadIdx = fiber->thread;
  if (HasAsan()) {
    __sanitizer_start_switch_fiber(&scheduler_fake_stack_, fiber->stack.bottom(), Stack::bytes());
  }
  SwitchTsanThread(fiber->tsan);
  scheduler_.SwitchTo(&fiber->context);
  if (HasAsan()) __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
  current = nullptr;
  if (fiber->state == FiberState::kReady) MakeReady(fiber);
  grid_->Step(slot_);
}

void Block::Leave(Fiber* fiber, FiberState state) {
  fiber->state = state;
  if (HasAsan()) {
    __sanitizer_start_switch_fiber(state == FiberState::kDone ? nullptr : &fiber->asan_fake_stack,
                                   scheduler_stack_, scheduler_stack_bytes_);
  }
  SwitchTsanThread(scheduler_tsan_);
  fiber->context.SwitchTo(&scheduler_);
  if (HasAsan()) __sanitizer_finish_switch_fiber(fiber->asan_fake_stack, nullptr, nullptr);
}

// In order, a thread runs until it waits; but a spinning thread must let others run. The adversarial order
// lets a thread run for long, and then all others before it.
void Block::SwitchPoint() {
  Fiber* const fiber = current;
  constexpr int64_t kLongest = 256;
  bool leaves = ++fiber->run_length % kLongest == 0;
  if (grid_->schedule().order == Order::kAdversarial) {
    leaves = leaves || grid_->random().OneIn(16);
    if (fiber->run_length >= kLongest || grid_->random().OneIn(64)) {
      fiber->priority = --lowest_priority_;
      fiber->run_length = 0;
      leaves = true;
    }
  } else if (grid_->schedule().order == Order::kRandom) {
    leaves = leaves || grid_->random().OneIn(grid_->atomics_per_switch());
  }
  if (leaves) Leave(fiber, FiberState::kReady);
}

void Block::AccessPoint() {
  Fiber* const fiber = current;
  constexpr int64_t kLongest = int64_t{1} << 16;  // of a thread that spins without an atomic
  if (grid_->random().OneIn(grid_->accesses_per_switch()) || ++fiber->run_length % kLongest == 0) {
    Leave(fiber, FiberState::kReady);
  }
}

}  // namespace sok::on_host
