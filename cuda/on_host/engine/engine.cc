// The functions of include/cuda_on_host/engine.h, and reports.
#include "cuda_on_host/engine.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cuda/on_host/engine/block.h"
#include "cuda/on_host/engine/grid.h"
#include "cuda/on_host/engine/schedule.h"

namespace sok::on_host {
namespace {

std::string Formatted(const char* format, va_list arguments) {
  char text[2048];
  std::vsnprintf(text, sizeof(text), format, arguments);
  return text;
}

std::string PositionOf(const Fiber& fiber) {
  char text[256];
  const uint3 b = blockIdx, t = fiber.thread;
  std::snprintf(text, sizeof(text), ", block (%u, %u, %u), thread (%u, %u, %u)", b.x, b.y, b.z, t.x, t.y,
                t.z);
  return FunctionAt(fiber.block->grid().call().kernel) + text;
}

[[noreturn]] void End(const std::string& where, const std::string& what) {
  std::string text = "on_host: " + what + "\n";
  if (const Fiber* fiber = Block::Current()) text += "  in " + PositionOf(*fiber) + "\n";
  if (!where.empty()) text += "  at " + where + "\n";
  text += "  schedule: " + ToString(CurrentSchedule()) + "\n";
  std::fflush(stdout);
  std::fputs(text.c_str(), stderr);
  std::abort();
}

// The position of a call that only a kernel may make.
Fiber& CallingFiber(const char* what) {
  Fiber* const fiber = Block::Current();
  if (fiber == nullptr) Report({}, "%s is called outside a kernel", what);
  return *fiber;
}

}  // namespace

void Report(Place place, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string what = Formatted(format, arguments);
  va_end(arguments);
  End(place.file == nullptr ? "" : std::string(place.file) + ":" + std::to_string(place.line), what);
}

void ReportAt(const void* code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string what = Formatted(format, arguments);
  va_end(arguments);
  const std::string line = LineAt(code);
  End(FunctionAt(code) + (line.empty() ? "" : ", " + line), what);
}

uint64_t WarpCollective(Collective kind, uint32_t mask, uint64_t value, int source, Place place) {
  return CallingFiber(NameOf(kind)).block->WarpCollective(kind, mask, value, source, place);
}

void BlockBarrier(Place place) { CallingFiber("__syncthreads").block->Barrier(place); }

void BeforeAtomic(const void* address, size_t bytes, bool block_scope, Place place) {
  const Fiber& fiber = CallingFiber("an atomic operation");
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) {
    Report(place, "an atomic operation of %zu bytes at %p, which is not aligned to them", bytes, address);
  }
  const Memory memory = MemoryOf(fiber, address, bytes);
  if (memory == Memory::kForbidden) {
    Report(place, "an atomic operation on %s", DescribeForbidden(fiber, address).c_str());
  }
  if (memory == Memory::kGlobal && !fiber.may_access) {
    Report(place, "an atomic operation before the kernel waits for the kernels before it");
  }
  const dim3 grid = gridDim;
  const uint64_t block = blockIdx.x + uint64_t{grid.x} * (blockIdx.y + uint64_t{grid.y} * blockIdx.z);
  if (block_scope && memory == Memory::kGlobal && !fiber.block->grid().NoteBlockScope(address, block)) {
    Report(place, "an atomic operation of the block's scope, at %p, which another block uses too", address);
  }
  fiber.block->SwitchPoint();
}

void AwaitPreviousGrids() { CallingFiber("cudaGridDependencySynchronize").may_access = true; }

void SwitchPoint() {
  if (Fiber* const fiber = Block::Current()) fiber->block->SwitchPoint();
}

void* DynamicSharedMemory() { return CallingFiber("DynamicShared").block->dynamic_shared(); }

uint64_t AnyNumber() {
  Grid& grid = CallingFiber("AnyNumber").block->grid();
  return grid.schedule().order == Order::kInOrder ? 0 : grid.random().Next();
}

int Lane() { return CallingFiber("a warp function").index % kWarpSize; }

}  // namespace sok::on_host
