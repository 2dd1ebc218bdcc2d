#include "cc/base/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace sok {
namespace {

constexpr int64_t kCacheLineBytes = 64;
// Above this, rounding up would overflow. No machine has as much memory.
constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max() / 4;

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

Status OutOfMemory(int64_t bytes) { return ResourceExhausted("cannot allocate ", bytes, " bytes of memory"); }

// `bytes` (a multiple of the huge page) of anonymous memory on a huge page boundary, or nullptr.
void* MapAligned(int64_t bytes, int protection) {
  const int64_t huge = PageBuffer::kHugePageBytes;
  void* raw = mmap(nullptr, bytes + huge, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(raw);
  const int64_t head = (huge - static_cast<int64_t>(reinterpret_cast<uintptr_t>(raw) % huge)) % huge;
  if (head > 0) munmap(begin, head);
  if (huge - head > 0) munmap(begin + head + bytes, huge - head);
  return begin + head;
}

}  // namespace

StatusOr<PageBuffer> PageBuffer::Allocate(int64_t bytes) {
  if (bytes >= kHugePageBytes) {
    StatusOr<PageBuffer> buffer = ReserveAddresses(bytes);
    if (buffer.ok()) buffer.value().AdviseHugePages(bytes);
    return buffer;
  }
  PageBuffer buffer;
  if (bytes < 0) return OutOfMemory(bytes);
  if (bytes == 0) return buffer;
  const int64_t rounded = RoundUp(bytes, kCacheLineBytes);
  buffer.data_ = std::aligned_alloc(kCacheLineBytes, rounded);
  if (buffer.data_ == nullptr) return OutOfMemory(bytes);
  std::memset(buffer.data_, 0, rounded);
  buffer.size_ = bytes;
  return buffer;
}

StatusOr<PageBuffer> PageBuffer::ReserveAddresses(int64_t bytes) {
  PageBuffer buffer;
  if (bytes < 0 || bytes > kMaxBytes) return OutOfMemory(bytes);
  if (bytes == 0) return buffer;
  const int64_t rounded = RoundUp(bytes, kHugePageBytes);
  buffer.data_ = MapAligned(rounded, PROT_READ | PROT_WRITE);
  if (buffer.data_ == nullptr) return OutOfMemory(bytes);
  buffer.size_ = bytes;
  buffer.mapped_bytes_ = rounded;
  return buffer;
}

Status PageBuffer::Grow(int64_t bytes) {
  if (bytes <= size_) return OkStatus();
  if (bytes > kMaxBytes) return OutOfMemory(bytes);
  if (mapped_bytes_ == 0) {
    StatusOr<PageBuffer> larger = Allocate(bytes);
    if (larger.ok() && size_ > 0) std::memcpy(larger.value().data_, data_, size_);
    if (larger.ok()) *this = std::move(larger.value());
    return larger.status();
  }
  const int64_t rounded = RoundUp(bytes, kHugePageBytes);
  if (rounded > mapped_bytes_) {
    void* const to = MapAligned(rounded, PROT_NONE);
    if (to == nullptr) return OutOfMemory(bytes);
    // After a failure the addresses stay reserved, which takes no memory: whether the call has freed them is
    // not known, and another thread may have them.
    if (mremap(data_, mapped_bytes_, rounded, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) {
      return OutOfMemory(bytes);
    }
    data_ = to;
    mapped_bytes_ = rounded;
  }
  size_ = bytes;
  return OkStatus();
}

PageBuffer::~PageBuffer() {
  if (mapped_bytes_ > 0) {
    munmap(data_, mapped_bytes_);
  } else {
    std::free(data_);
  }
}

void PageBuffer::AdviseHugePages(int64_t bytes) {
  if (mapped_bytes_ == 0 || bytes <= 0) return;
  // A refusal (a kernel without huge pages) costs speed only.
  madvise(data_, std::min(RoundUp(bytes, kHugePageBytes), mapped_bytes_), MADV_HUGEPAGE);
}

}  // namespace sok
