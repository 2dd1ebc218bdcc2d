#include "cuda/on_host/engine/device_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cuda/on_host/engine/sanitizers.h"

namespace sok::on_host {

namespace {

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

// Pages that nothing may touch, anywhere or, with MAP_FIXED, in place of those at `address`.
long MapForbidden(void* address, size_t bytes, int flags) {
  const long at = syscall(SYS_mmap, address, bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (at == -1) Die("on_host: mmap");
  return at;
}

}  // namespace

char* MapMemory(size_t bytes, size_t forbidden) {
  const long at = MapForbidden(nullptr, bytes + forbidden, 0);
  char* const begin = reinterpret_cast<char*>(at);
  if (bytes > 0 && mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) Die("on_host: mprotect");
  return begin;
}

void ForbidMemory(char* begin, size_t bytes) {
  if (mprotect(begin, bytes, PROT_NONE) != 0) Die("on_host: mprotect");
}

void ReturnMemory(char* begin, size_t bytes) { MapForbidden(begin, bytes, MAP_FIXED); }

namespace {

constexpr size_t kArenaBytes = size_t{256} << 30;  // addresses, not memory
constexpr size_t kPages = kArenaBytes / kPage;
constexpr size_t kMaxAllocations = size_t{1} << 24;
constexpr size_t kAlignment = 256;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

__thread int access_depth;

// Held for a few instructions or a system call. ThreadSanitizer does not see it: it orders nothing.
class SpinLock {
 public:
  explicit SpinLock(std::atomic_flag* flag) : flag_(flag) {
    while (flag_->test_and_set(std::memory_order_acquire)) {
    }
  }
  ~SpinLock() { flag_->clear(std::memory_order_release); }
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

 private:
  std::atomic_flag* const flag_;
};

struct Pages {
  char* begin;
  size_t bytes;
};

// The pages of an allocation's bytes; empty allocations have none.
Pages PagesOf(const Allocation& allocation) {
  const size_t before = reinterpret_cast<uintptr_t>(allocation.address) % kPage;
  return {allocation.address - before, RoundUp(before + allocation.bytes, kPage)};
}

}  // namespace

void FillWithPoison(void* address, size_t bytes) {
  using Word __attribute__((may_alias)) = uint64_t;
  char* const to = static_cast<char*>(address);
  size_t i = 0;
  if (reinterpret_cast<uintptr_t>(address) % sizeof(Word) == 0) {
    for (; i + sizeof(Word) <= bytes; i += sizeof(Word)) {
      *reinterpret_cast<volatile Word*>(to + i) = Word{kPoison} << 32 | kPoison;
    }
  }
  for (; i < bytes; ++i) {
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
  // The page after it is never mapped, and is registered so that reports can name the allocation.
  for (size_t p = 0; p <= pages; ++p) allocation_of_page_[next_page_ + p] = entry;
  next_page_ += pages + 1;
  in_use += bytes;

  if (fills_fresh_) AsanPoison(allocation->address, body);
  if (!IsOpenedOnTouch(*allocation)) {
    const SpinLock opening(&opening_);
    Open(allocation);
    if (!live) Close(allocation);
  }
  if (live) BeLive(allocation);
  return allocation;
}

// With protection keys, mapped memory is already closed to threads that may not use it.
bool DeviceMemory::IsOpenedOnTouch(const Allocation& allocation) const {
  return allocation.kind == MemoryKind::kDevice && key_ < 0;
}

void DeviceMemory::BeLive(Allocation* allocation) const {
  allocation->state = AllocationState::kLive;
  AsanUnpoison(allocation->address, allocation->bytes);
}

void DeviceMemory::MakeLive(Allocation* allocation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  BeLive(allocation);
  if (IsOpenedOnTouch(*allocation)) return;
  const SpinLock opening(&opening_);
  Open(allocation);
}

void DeviceMemory::Free(Allocation* allocation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  in_use_[static_cast<int>(allocation->kind)] -= allocation->bytes;
  const SpinLock opening(&opening_);
  allocation->state = AllocationState::kFreed;
  AsanPoison(allocation->address, allocation->bytes);
  allocation->is_open = false;
  const Pages pages = PagesOf(*allocation);
  if (allocation->was_open && pages.bytes > 0) ReturnMemory(pages.begin, pages.bytes);
}

// ---- Opening and closing. ----

void DeviceMemory::Open(Allocation* allocation) {
  Protect(*allocation, PROT_READ | PROT_WRITE);
  if (fills_fresh_ && !allocation->was_open) Fill(*allocation);
  allocation->was_open = true;
  allocation->is_open = true;
}

void DeviceMemory::Close(Allocation* allocation) {
  Protect(*allocation, PROT_NONE);
  allocation->is_open = false;
}

void DeviceMemory::Fill(const Allocation& allocation) const {
  if (key_ >= 0) pkey_set(key_, 0);
  FillWithPoison(allocation.address, RoundUp(allocation.bytes, kAlignment));
  if (key_ >= 0 && access_depth == 0) pkey_set(key_, PKEY_DISABLE_ACCESS);
}

void DeviceMemory::Protect(const Allocation& allocation, int protection) const {
  const Pages pages = PagesOf(allocation);
  if (pages.bytes == 0) return;
  const bool keyed = key_ >= 0 && allocation.kind == MemoryKind::kDevice;
  const int failed = keyed ? pkey_mprotect(pages.begin, pages.bytes, protection, key_)
                           : mprotect(pages.begin, pages.bytes, protection);
  if (failed != 0) {
    std::perror("on_host: mprotect of device memory");
    std::abort();
  }
}

bool DeviceMemory::OpenAt(const void* address) {
  Allocation* const allocation = Find(address);
  if (allocation == nullptr || !IsOpenedOnTouch(*allocation) || access_depth == 0) return false;
  const Pages pages = PagesOf(*allocation);
  if (static_cast<size_t>(static_cast<const char*>(address) - pages.begin) >= pages.bytes) return false;
  const SpinLock opening(&opening_);
  if (allocation->state != AllocationState::kLive) return false;
  if (allocation->is_open) return true;  // another thread was faster
  Open(allocation);
  allocation->next_opened = opened_;
  opened_ = allocation;
  return true;
}

void DeviceMemory::CloseOpened() {
  const SpinLock opening(&opening_);
  for (; opened_ != nullptr; opened_ = opened_->next_opened) {
    if (opened_->is_open) Close(opened_);
  }
}

void DeviceMemory::BeginAccess() {
  if (access_depth++ == 0) Use();
}

void DeviceMemory::EndAccess() {
  if (--access_depth == 0) EndUse();
}

int DeviceMemory::SuspendAccess() {
  const int depth = access_depth;
  access_depth = 0;
  if (depth > 0) EndUse();
  return depth;
}

void DeviceMemory::ResumeAccess(int depth) {
  access_depth = depth;
  if (depth > 0) Use();
}

void DeviceMemory::Use() {
  if (key_ >= 0) {
    pkey_set(key_, 0);
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  ++num_using_;
}

void DeviceMemory::EndUse() {
  if (key_ >= 0) {
    pkey_set(key_, PKEY_DISABLE_ACCESS);
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--num_using_ == 0) CloseOpened();
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
