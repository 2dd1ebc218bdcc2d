#include "cuda/on_host/engine/block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cuda/on_host/engine/device_memory.h"
#include "cuda/on_host/engine/grid.h"
#include "cuda/on_host/engine/memory_map.h"
#include "cuda/on_host/engine/report.h"

__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim, gridDim;

namespace sok::on_host {
namespace {

__thread Fiber* current;

constexpr size_t kPage = 4096;
// Dynamic shared memory ends where a page ends that is never mapped, up to the 16 bytes of its alignment.
constexpr size_t kSharedPages = (kMaxDynamicShared + kPage - 1) / kPage * kPage;

int LaneOf(const Fiber& fiber) { return fiber.index % kWarpSize; }
bool IsInMask(uint32_t mask, int lane) { return (mask >> lane & 1) != 0; }
int FirstOfWarp(const Fiber& fiber) { return fiber.index - LaneOf(fiber); }

}  // namespace

const char* NameOf(Collective kind) {
  switch (kind) {
    case Collective::kSync:
      return "__syncwarp";
    case Collective::kShuffle:
      return "a shuffle";
    case Collective::kBallot:
      return "a vote";
    case Collective::kMatchAny:
      return "__match_any_sync";
    case Collective::kMatchAll:
      return "__match_all_sync";
    default:
      return "a warp reduction";
  }
}

Block::Block(Grid* grid, int slot)
    : grid_(grid), slot_(slot), dynamic_shared_memory_(MapMemory(kSharedPages, kPage)) {
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
  UnmapMemory(dynamic_shared_memory_, kSharedPages + kPage);
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

// ---- From the begin of a block to its end. ----

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
  num_at_barrier_ = num_votes_ = num_done_ = 0;
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
  block_ended_[num_blocks_ % 2].Release();
  grid_->end().Release();
  ++num_done_;
  Leave(fiber, FiberState::kDone);
  std::abort();  // a fiber that is done is not resumed
}

// ---- Which thread goes on. ----

void Block::MakeReady(Fiber* fiber) {
  fiber->state = FiberState::kReady;
  ready_[(first_ready_ + num_ready_++) % ready_.size()] = fiber;
}

Fiber* Block::PickHighestPriority() {
  size_t highest = 0;
  for (size_t i = 1; i < num_ready_; ++i) {
    const auto at = [&](size_t j) { return ready_[(first_ready_ + j) % ready_.size()]->priority; };
    if (at(i) > at(highest)) highest = i;
  }
  std::swap(ready_[first_ready_], ready_[(first_ready_ + highest) % ready_.size()]);
  return ready_[first_ready_];
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
      PickHighestPriority();
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

// In order, a thread goes on until it waits; but one that spins must let others go on. An adversary lets a
// thread run long, and then all others first.
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

// ---- The block's barrier. ----

int Block::BarrierResult(BlockVote vote) const {
  switch (vote) {
    case BlockVote::kNone:
      return 0;
    case BlockVote::kCount:
      return num_votes_;
    case BlockVote::kAnd:
      return num_votes_ == num_threads_ ? 1 : 0;
    case BlockVote::kOr:
      return num_votes_ > 0 ? 1 : 0;
  }
  return 0;
}

int Block::Barrier(BlockVote vote, bool predicate, Place place) {
  Fiber* const fiber = current;
  fiber->place = place;
  fiber->vote = vote;
  if (num_done_ > 0)
    Report(place, "__syncthreads, after %d threads of the block have left the kernel", num_done_);
  if (num_at_barrier_ == 0) {
    first_at_barrier_ = fiber;
  } else if (first_at_barrier_->place.line != place.line || first_at_barrier_->vote != vote ||
             std::strcmp(first_at_barrier_->place.file, place.file) != 0) {
    Report(place, "__syncthreads, while thread %d waits at another one (%s:%d)", first_at_barrier_->index,
           first_at_barrier_->place.file, first_at_barrier_->place.line);
  }
  num_votes_ += predicate ? 1 : 0;
  TsanOrder& order = barrier_[num_barriers_ % 2];
  order.Release();
  if (++num_at_barrier_ < num_threads_) {
    Leave(fiber, FiberState::kAtBarrier);
  } else {
    barrier_result_ = BarrierResult(vote);
    num_at_barrier_ = num_votes_ = 0;
    ++num_barriers_;
    for (Fiber& other : fibers_) {
      if (&other != fiber) MakeReady(&other);
    }
    Leave(fiber, FiberState::kReady);
  }
  order.Acquire();
  return barrier_result_;
}

// ---- Warps. ----

// Two lanes that wait for each other at different calls would wait for ever. One that waits at a call of
// other lanes may still come.
void Block::CheckLane(const Fiber& mine, int lane) const {
  const int index = FirstOfWarp(mine) + lane;
  if (index >= num_threads_) {
    Report(mine.place, "%s with mask %08x, which has lane %d; the block has %d threads", NameOf(mine.kind),
           mine.mask, lane, num_threads_);
  }
  const Fiber& other = fibers_[index];
  if (other.state == FiberState::kDone) {
    Report(mine.place, "%s with mask %08x waits for lane %d, which has left the kernel", NameOf(mine.kind),
           mine.mask, lane);
  }
  if (other.state != FiberState::kAtCollective || !IsInMask(other.mask, LaneOf(mine))) return;
  if (other.kind != mine.kind || other.mask != mine.mask) {
    Report(mine.place, "%s with mask %08x, while lane %d waits at %s with mask %08x (%s:%d)",
           NameOf(mine.kind), mine.mask, lane, NameOf(other.kind), other.mask, other.place.file,
           other.place.line);
  }
}

bool Block::AllLanesHere(const Fiber& mine) const {
  bool all = true;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (!IsInMask(mine.mask, lane) || lane == LaneOf(mine)) continue;
    CheckLane(mine, lane);
    const Fiber& other = fibers_[FirstOfWarp(mine) + lane];
    all = all && other.state == FiberState::kAtCollective && other.mask == mine.mask;
  }
  return all;
}

uint64_t Block::WarpCollective(Collective kind, uint32_t mask, uint64_t value, int source, Place place) {
  Fiber* const fiber = current;
  fiber->kind = kind;
  fiber->mask = mask;
  fiber->value = value;
  fiber->source = source;
  fiber->place = place;
  if (!IsInMask(mask, LaneOf(*fiber))) {
    Report(place, "%s with mask %08x, in which the calling lane %d is not", NameOf(kind), mask,
           LaneOf(*fiber));
  }
  if (kind == Collective::kShuffle && !IsInMask(mask, source)) {
    Report(place, "a shuffle with mask %08x reads lane %d, which is not in it", mask, source);
  }
  WarpOrders& orders = warp_orders_[FirstOfWarp(*fiber) + __builtin_ctz(mask)];
  TsanOrder& order = orders.order[orders.num_syncs % 2];
  // Of all of these, CUDA gives only __syncwarp an order of memory.
  if (kind == Collective::kSync) order.Release();
  if (AllLanesHere(*fiber)) {
    if (kind == Collective::kSync) ++orders.num_syncs;
    FinishCollective(*fiber);
    Leave(fiber, FiberState::kReady);
  } else {
    Leave(fiber, FiberState::kAtCollective);
  }
  if (kind == Collective::kSync) order.Acquire();
  return fiber->value;
}

namespace {

// The values that the lanes of a mask brought.
struct LaneValues {
  uint32_t mask;
  uint64_t values[kWarpSize];

  template <typename Combine>
  uint64_t Combined(const Combine& combine) const {
    uint64_t all = values[__builtin_ctz(mask)];
    for (int lane = __builtin_ctz(mask) + 1; lane < kWarpSize; ++lane) {
      if (IsInMask(mask, lane)) all = combine(all, values[lane]);
    }
    return all;
  }
  // The lanes whose value is `value`.
  uint64_t LanesWith(uint64_t value) const {
    uint64_t lanes = 0;
    for (int lane = 0; lane < kWarpSize; ++lane) {
      if (IsInMask(mask, lane) && values[lane] == value) lanes |= uint64_t{1} << lane;
    }
    return lanes;
  }
};

// What the lane gets that brought `value`.
uint64_t ResultOf(Collective kind, const LaneValues& lanes, uint64_t value, int source) {
  switch (kind) {
    case Collective::kSync:
      return 0;
    case Collective::kShuffle:
      return lanes.values[source];
    case Collective::kBallot:
      return lanes.LanesWith(1);
    case Collective::kMatchAny:
      return lanes.LanesWith(value);
    case Collective::kMatchAll:
      return lanes.LanesWith(value) == lanes.mask ? lanes.mask : 0;
    case Collective::kAdd:
      return lanes.Combined([](uint64_t a, uint64_t b) { return a + b; });
    case Collective::kMin:
      return lanes.Combined([](int64_t a, int64_t b) { return std::min(a, b); });
    case Collective::kMax:
      return lanes.Combined([](int64_t a, int64_t b) { return std::max(a, b); });
    case Collective::kAnd:
      return lanes.Combined([](uint64_t a, uint64_t b) { return a & b; });
    case Collective::kOr:
      return lanes.Combined([](uint64_t a, uint64_t b) { return a | b; });
    case Collective::kXor:
      return lanes.Combined([](uint64_t a, uint64_t b) { return a ^ b; });
  }
  return 0;
}

}  // namespace

void Block::FinishCollective(const Fiber& last) {
  LaneValues lanes = {last.mask, {}};
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (IsInMask(last.mask, lane)) lanes.values[lane] = fibers_[FirstOfWarp(last) + lane].value;
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (!IsInMask(last.mask, lane)) continue;
    Fiber& fiber = fibers_[FirstOfWarp(last) + lane];
    fiber.value = ResultOf(last.kind, lanes, fiber.value, fiber.source);
    if (&fiber != &last) MakeReady(&fiber);
  }
}

void Block::ReportStuck() const {
  constexpr int kMaxLines = 8;
  std::string waiting;
  int lines = 0, num_waiting = 0;
  for (const Fiber& fiber : fibers_) {
    if (fiber.state == FiberState::kDone) continue;
    ++num_waiting;
    if (++lines > kMaxLines) continue;
    const bool at_barrier = fiber.state == FiberState::kAtBarrier;
    waiting += "\n    thread " + std::to_string(fiber.index) + " at " +
               (at_barrier ? "__syncthreads" : NameOf(fiber.kind)) + ", " + fiber.place.file + ":" +
               std::to_string(fiber.place.line);
  }
  if (num_waiting > kMaxLines) waiting += "\n    ...";
  Report({}, "the block is stuck: %d of its threads have left the kernel, %d wait%s", num_done_, num_waiting,
         waiting.c_str());
}

}  // namespace sok::on_host
