// The collective operations of a block's threads: barriers and warp functions.
#include <cstring>
#include <string>

#include "cuda/on_host/engine/block.h"

namespace sok::on_host {
namespace {

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
  }
  return "";
}

// ---- The block's barrier. ----

void Block::Barrier(Place place) {
  Fiber* const fiber = Current();
  fiber->place = place;
  if (num_done_ > 0)
    Report(place, "__syncthreads, after %d threads of the block have left the kernel", num_done_);
  if (num_at_barrier_ == 0) {
    first_at_barrier_ = fiber;
  } else if (first_at_barrier_->place.line != place.line ||
             std::strcmp(first_at_barrier_->place.file, place.file) != 0) {
    Report(place, "__syncthreads, while thread %d waits at another one (%s:%d)", first_at_barrier_->index,
           first_at_barrier_->place.file, first_at_barrier_->place.line);
  }
  TsanOrder& order = barrier_[num_barriers_ % 2];
  order.Release();
  if (++num_at_barrier_ < num_threads_) {
    Leave(fiber, FiberState::kAtBarrier);
  } else {
    num_at_barrier_ = 0;
    ++num_barriers_;
    for (Fiber& other : fibers_) {
      if (&other != fiber) MakeReady(&other);
    }
    Leave(fiber, FiberState::kReady);
  }
  order.Acquire();
}

// ---- Warps. ----

// Two lanes that wait for each other at different calls would wait forever. A lane that waits at a call with
// other lanes may still arrive.
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
  Fiber* const fiber = Current();
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
  // Of all these, only __syncwarp orders memory in CUDA.
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

// The values that the lanes of a mask passed.
struct LaneValues {
  uint32_t mask;
  uint64_t values[kWarpSize];

  // The lanes whose value is `value`.
  uint64_t LanesWith(uint64_t value) const {
    uint64_t lanes = 0;
    for (int lane = 0; lane < kWarpSize; ++lane) {
      if (IsInMask(mask, lane) && values[lane] == value) lanes |= uint64_t{1} << lane;
    }
    return lanes;
  }
};

// The result of the lane that passed `value`.
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
