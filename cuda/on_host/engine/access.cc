#include <cstdint>
#include <cstdio>

#include "cuda/on_host/engine/block.h"
#include "cuda/on_host/engine/device_memory.h"
#include "cuda/on_host/engine/grid.h"

namespace sok::on_host {
namespace {

bool IsWithin(const void* address, size_t bytes, const char* begin, size_t size) {
  const auto offset = static_cast<size_t>(static_cast<const char*>(address) - begin);
  return offset <= size && bytes <= size - offset;
}

bool IsThreadVariable(const Block& block, uintptr_t address) {
  for (const Range& segment : block.variables().segments) {
    if (segment.Has(address)) return true;
  }
  return false;
}

}  // namespace

Memory MemoryOf(const Fiber& fiber, const void* address, size_t bytes) {
  if (IsWithin(address, bytes, fiber.stack.bottom(), Stack::bytes())) return Memory::kOwnStack;
  DeviceMemory& memory = DeviceMemory::Get();
  if (memory.Owns(address)) {
    const Allocation* const found = memory.Find(address);
    const bool usable = found != nullptr && found->state == AllocationState::kLive &&
                        IsWithin(address, bytes, found->address, found->bytes);
    // A fault would open it too, but later and more slowly.
    if (usable && !memory.IsOpen(*found, address, bytes)) memory.OpenAt(address, bytes);
    return usable ? Memory::kGlobal : Memory::kForbidden;
  }
  Block& block = *fiber.block;
  const Grid& grid = block.grid();
  if (IsWithin(address, bytes, block.dynamic_shared(), grid.shape().dynamic_shared_bytes))
    return Memory::kShared;
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (IsThreadVariable(block, at)) return Memory::kShared;
  const auto* const arguments = static_cast<const char*>(grid.call().arguments.get());
  if (IsWithin(address, bytes, arguments, grid.call().argument_bytes)) return Memory::kConstant;
  if (grid.IsStaticImage(at)) return Memory::kConstant;
  // A library's thread_local variables are created at their first use.
  block.FindVariables();
  return IsThreadVariable(block, at) ? Memory::kShared : Memory::kForbidden;
}

std::string DescribeForbidden(const Fiber& fiber, const void* address) {
  char text[128];
  const Block& block = *fiber.block;
  const ptrdiff_t offset = static_cast<const char*>(address) - block.dynamic_shared();
  const size_t shared_bytes = block.grid().shape().dynamic_shared_bytes;
  constexpr ptrdiff_t kNear = 1 << 16;
  if (-kNear <= offset && offset <= static_cast<ptrdiff_t>(kMaxDynamicShared)) {
    std::snprintf(text, sizeof(text), "offset %td of %zu bytes of dynamic shared memory", offset,
                  shared_bytes);
    return text;
  }
  if (const Fiber* owner = block.OwnerOfStack(address)) {
    std::snprintf(text, sizeof(text), "%p, which is a local variable of thread %d", address, owner->index);
    return text;
  }
  return DescribeAddress(address);
}

}  // namespace sok::on_host
