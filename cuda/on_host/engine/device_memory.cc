#include "cuda/on_host/engine/device_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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
// Of a piece, unless it is the last one of an allocation. TensorFlow takes all of a device's memory at once,
// of which a kernel touches little.
constexpr size_t kPieceBytes = size_t{256} << 10;

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
  is_open_ = reinterpret_cast<std::atomic<bool>*>(MapMemory(kPages * sizeof(*is_open_), 0));
  was_open_ = reinterpret_cast<std::atomic<bool>*>(MapMemory(kPages * sizeof(*was_open_), 0));
  opened_ = reinterpret_cast<Pages*>(MapMemory(kPages * sizeof(*opened_), 0));
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
  const uint32_t found = allocation_of_page_[PageOf(address)];
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
    Open(allocation, PagesOf(*allocation));
    if (!live) Close(kind, PagesOf(*allocation));
  }
  if (live) BeLive(allocation);
  return allocation;
}

Pages DeviceMemory::PieceAt(const Allocation& allocation, const void* address) const {
  const Pages all = PagesOf(allocation);
  if (!IsOpenedOnTouch(allocation)) return all;
  const size_t before =
      static_cast<size_t>(static_cast<const char*>(address) - all.begin) / kPieceBytes * kPieceBytes;
  return {all.begin + before, std::min(kPieceBytes, all.bytes - before)};
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
  Open(allocation, PagesOf(*allocation));
}

void DeviceMemory::Free(Allocation* allocation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  in_use_[static_cast<int>(allocation->kind)] -= allocation->bytes;
  const SpinLock opening(&opening_);
  allocation->state = AllocationState::kFreed;
  AsanPoison(allocation->address, allocation->bytes);
  const Pages pages = PagesOf(*allocation);
  if (!allocation->was_open || pages.bytes == 0) return;
  for (size_t at = 0; at < pages.bytes; at += kPieceBytes) is_open_[PageOf(pages.begin + at)] = false;
  ReturnMemory(pages.begin, pages.bytes);
}

// ---- Opening and closing. ----

void DeviceMemory::Open(Allocation* allocation, const Pages& piece) {
  Protect(allocation->kind, piece, PROT_READ | PROT_WRITE);
  const size_t page = PageOf(piece.begin);
  if (fills_fresh_ && !was_open_[page]) Fill(*allocation, piece);
  allocation->was_open = was_open_[page] = true;
  is_open_[page] = true;
}

void DeviceMemory::Close(MemoryKind kind, const Pages& piece) {
  Protect(kind, piece, PROT_NONE);
  is_open_[PageOf(piece.begin)] = false;
}

void DeviceMemory::Fill(const Allocation& allocation, const Pages& piece) const {
  char* const begin = std::max(allocation.address, piece.begin);
  char* const end =
      std::min(allocation.address + RoundUp(allocation.bytes, kAlignment), piece.begin + piece.bytes);
  if (begin >= end) return;
  if (key_ >= 0) pkey_set(key_, 0);
  FillWithPoison(begin, static_cast<size_t>(end - begin));
  if (key_ >= 0 && access_depth == 0) pkey_set(key_, PKEY_DISABLE_ACCESS);
}

void DeviceMemory::Protect(MemoryKind kind, const Pages& piece, int protection) const {
  if (piece.bytes == 0) return;
  const bool keyed = key_ >= 0 && kind == MemoryKind::kDevice;
  const int failed = keyed ? pkey_mprotect(piece.begin, piece.bytes, protection, key_)
                           : mprotect(piece.begin, piece.bytes, protection);
  if (failed != 0) {
    std::perror("on_host: mprotect of device memory");
    std::abort();
  }
}

bool DeviceMemory::OpenAt(const void* address, size_t bytes) {
  Allocation* const allocation = Find(address);
  if (allocation == nullptr || !IsOpenedOnTouch(*allocation) || access_depth == 0) return false;
  const Pages pages = PagesOf(*allocation);
  const char* at = static_cast<const char*>(address);
  const char* const end = std::min(at + bytes, static_cast<const char*>(pages.begin + pages.bytes));
  if (at < pages.begin || at >= end) return false;
  while (at < end) {
    const Pages piece = PieceAt(*allocation, at);
    if (!OpenPiece(allocation, piece)) return false;
    at = piece.begin + piece.bytes;
  }
  return true;
}

bool DeviceMemory::OpenPiece(Allocation* allocation, const Pages& piece) {
  const SpinLock opening(&opening_);
  if (allocation->state != AllocationState::kLive) return false;
  if (is_open_[PageOf(piece.begin)]) return true;  // another thread was faster
  Open(allocation, piece);
  opened_[num_opened_++] = piece;
  return true;
}

void DeviceMemory::CloseOpened() {
  const SpinLock opening(&opening_);
  while (num_opened_ > 0) {
    const Pages piece = opened_[--num_opened_];
    if (is_open_[PageOf(piece.begin)]) Close(MemoryKind::kDevice, piece);
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
