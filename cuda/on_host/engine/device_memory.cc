#include "cuda/on_host/engine/device_memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cuda/on_host/engine/faults.h"
#include "cuda/on_host/engine/memory_map.h"
#include "cuda/on_host/engine/sanitizers.h"

namespace sok::on_host {
namespace {

constexpr size_t kArenaBytes = size_t{256} << 30;  // addresses, not memory
constexpr size_t kPage = 4096;
constexpr size_t kPages = kArenaBytes / kPage;
constexpr size_t kMaxAllocations = size_t{1} << 24;
constexpr size_t kAlignment = 256;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

__thread int access_depth;

}  // namespace

void FillWithPoison(void* address, size_t bytes) {
  char* const to = static_cast<char*>(address);
  for (size_t i = 0; i < bytes; ++i) {
    const_cast<volatile char*>(to)[i] = static_cast<char>(kPoison >> i % sizeof(kPoison) * 8);
  }
}

DeviceMemory& DeviceMemory::Get() {
  static auto& memory = *new DeviceMemory();
  return memory;
}

DeviceMemory::DeviceMemory() {
  base_ = MapMemory(0, kArenaBytes);
  allocation_of_page_ = reinterpret_cast<uint32_t*>(MapMemory(kPages * sizeof(uint32_t), 0));
  allocations_ = reinterpret_cast<Allocation*>(MapMemory(kMaxAllocations * sizeof(Allocation), 0));
  const char* const keys = std::getenv("SOK_ON_HOST_PROTECTION_KEYS");
  if (keys == nullptr || std::strcmp(keys, "0") != 0) key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  const char* const fill = std::getenv("SOK_ON_HOST_FILL");
  fills_fresh_ = fill == nullptr || std::strcmp(fill, "0") != 0;
  ReportFaults();
}

bool DeviceMemory::Owns(const void* address) const {
  return static_cast<size_t>(static_cast<const char*>(address) - base_) < kArenaBytes;
}

Allocation* DeviceMemory::Find(const void* address) const {
  if (!Owns(address)) return nullptr;
  const uint32_t found =
      allocation_of_page_[static_cast<size_t>(static_cast<const char*>(address) - base_) / kPage];
  return found == 0 ? nullptr : &allocations_[found - 1];
}

Allocation* DeviceMemory::Allocate(size_t bytes, MemoryKind kind, bool live) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& in_use = in_use_[static_cast<int>(kind)];
  const size_t body = RoundUp(bytes, kAlignment);
  const size_t pages = RoundUp(body, kPage) / kPage;
  if (bytes > limit_ || in_use + bytes > limit_ || next_page_ + pages + 1 > kPages) return nullptr;
  if (num_allocations_ == kMaxAllocations) return nullptr;
  Allocation* const allocation = new (&allocations_[num_allocations_]) Allocation();
  allocation->address = base_ + (next_page_ + pages) * kPage - body;
  allocation->bytes = bytes;
  allocation->kind = kind;
  allocation->state = AllocationState::kReserved;
  allocation->is_of_pool = !live;
  const auto entry = static_cast<uint32_t>(++num_allocations_);
  // The page behind it is never mapped, and names it in reports.
  for (size_t p = 0; p <= pages; ++p) allocation_of_page_[next_page_ + p] = entry;
  next_page_ += pages + 1;
  in_use += bytes;

  if (fills_fresh_) Fill(*allocation, body);
  if (live) {
    allocation->state = AllocationState::kLive;
    if (kind == MemoryKind::kDevice) live_device_memory_.insert(allocation);
    AsanUnpoison(allocation->address, bytes);
    if (!IsClosed(*allocation)) Protect(*allocation, PROT_READ | PROT_WRITE);
  }
  return allocation;
}

void DeviceMemory::Fill(const Allocation& allocation, size_t bytes) const {
  Protect(allocation, PROT_READ | PROT_WRITE);
  if (key_ >= 0) pkey_set(key_, 0);
  AsanUnpoison(allocation.address, bytes);
  FillWithPoison(allocation.address, bytes);
  AsanPoison(allocation.address, bytes);
  if (key_ >= 0 && access_depth == 0) pkey_set(key_, PKEY_DISABLE_ACCESS);
  Protect(allocation, PROT_NONE);
}

// With keys, mapped memory is closed to threads that have not asked for it.
bool DeviceMemory::IsClosed(const Allocation& allocation) const {
  return allocation.kind == MemoryKind::kDevice && key_ < 0 && open_ == 0;
}

void DeviceMemory::MakeLive(Allocation* allocation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  allocation->state = AllocationState::kLive;
  if (allocation->kind == MemoryKind::kDevice) live_device_memory_.insert(allocation);
  AsanUnpoison(allocation->address, allocation->bytes);
  if (!IsClosed(*allocation)) Protect(*allocation, PROT_READ | PROT_WRITE);
}

void DeviceMemory::Free(Allocation* allocation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  allocation->state = AllocationState::kFreed;
  live_device_memory_.erase(allocation);
  in_use_[static_cast<int>(allocation->kind)] -= allocation->bytes;
  Protect(*allocation, PROT_NONE);
  AsanPoison(allocation->address, allocation->bytes);
  char* const begin = base_ + static_cast<size_t>(allocation->address - base_) / kPage * kPage;
  const size_t bytes = RoundUp(static_cast<size_t>(allocation->address + allocation->bytes - begin), kPage);
  if (bytes > 0) madvise(begin, bytes, MADV_DONTNEED);
}

void DeviceMemory::Protect(const Allocation& allocation, int protection) const {
  char* const begin = base_ + static_cast<size_t>(allocation.address - base_) / kPage * kPage;
  const size_t bytes = RoundUp(static_cast<size_t>(allocation.address + allocation.bytes - begin), kPage);
  if (bytes == 0) return;
  const bool keyed = key_ >= 0 && allocation.kind == MemoryKind::kDevice;
  const int failed =
      keyed ? pkey_mprotect(begin, bytes, protection, key_) : mprotect(begin, bytes, protection);
  if (failed != 0) {
    std::perror("on_host: mprotect of device memory");
    std::abort();
  }
}

void DeviceMemory::BeginAccess() {
  if (key_ >= 0) {
    if (access_depth++ == 0) pkey_set(key_, 0);
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (open_++ > 0) return;
  for (const Allocation* allocation : live_device_memory_) Protect(*allocation, PROT_READ | PROT_WRITE);
}

void DeviceMemory::EndAccess() {
  if (key_ >= 0) {
    if (--access_depth == 0) pkey_set(key_, PKEY_DISABLE_ACCESS);
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--open_ > 0) return;
  for (const Allocation* allocation : live_device_memory_) Protect(*allocation, PROT_NONE);
}

std::string DescribeAddress(const void* address) {
  char text[256];
  const Allocation* const allocation = DeviceMemory::Get().Find(address);
  if (allocation == nullptr) {
    const bool owned = DeviceMemory::Get().Owns(address);
    std::snprintf(text, sizeof(text), "%p, which is %s", address,
                  owned ? "no allocated device memory" : "memory of the host that is not pinned");
    return text;
  }
  const ptrdiff_t offset = static_cast<const char*>(address) - allocation->address;
  const AllocationState state = allocation->state;
  std::snprintf(text, sizeof(text), "%p: offset %td of %zu bytes of %s memory%s", address, offset,
                allocation->bytes, allocation->kind == MemoryKind::kDevice ? "device" : "pinned",
                state == AllocationState::kFreed      ? ", which was freed"
                : state == AllocationState::kReserved ? ", which its stream has not allocated yet"
                                                      : "");
  return text;
}

}  // namespace sok::on_host
