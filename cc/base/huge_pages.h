#ifndef SOK_CC_BASE_HUGE_PAGES_H_
#define SOK_CC_BASE_HUGE_PAGES_H_

#include <cstdint>
#include <utility>

#include "cc/base/status.h"

namespace sok {

// Zeroed memory for large arrays that are read at random.
//
// A random read from an array of gigabytes nearly always misses the TLB, and a walk through the page tables
// of 4 KB pages costs as much as the read itself. Large buffers therefore start on a 2 MB boundary, and the
// kernel is asked to back them with 2 MB pages. If it refuses, the buffer works the same but more slowly.
//
// The kernel backs each page on its first access, so a buffer may be larger than the part in use. Small
// buffers come from malloc, where the sanitizers check their bounds.
//
// Move-only. Not thread-safe; threads may share the memory as any other.
class PageBuffer {
 public:
  // Buffers of at least this size consist of whole huge pages.
  static constexpr int64_t kHugePageBytes = int64_t{2} << 20;

  // `bytes` zero bytes, aligned to a cache line or more; 0 bytes give a buffer without data. Requests huge
  // pages for the whole buffer. ResourceExhausted, with the number of bytes, if the system refuses.
  static StatusOr<PageBuffer> Allocate(int64_t bytes);

  // Like Allocate, but reserves address space only. The caller requests huge pages with AdviseHugePages as
  // the buffer fills, so a buffer of which only the beginning is used stays small. Never comes from malloc.
  static StatusOr<PageBuffer> ReserveAddresses(int64_t bytes);

  PageBuffer() = default;
  PageBuffer(PageBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    PageBuffer taken(std::move(other));
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    std::swap(mapped_bytes_, taken.mapped_bytes_);
    return *this;
  }
  ~PageBuffer();

  void* data() const { return data_; }
  int64_t size() const { return size_; }  // bytes, as asked for

  // Makes a buffer without data, or one of Allocate, larger. Its bytes stay, perhaps at another address, and
  // the new ones are zero. Small buffers are copied. The kernel enters the pages of others at the new
  // address, which takes half a millisecond for 2 GiB. ResourceExhausted if the system refuses; the buffer is
  // then unchanged.
  Status Grow(int64_t bytes);

  // Requests huge pages for the first `bytes` bytes, rounded up to whole huge pages. Does nothing for a
  // buffer from malloc or for parts that were requested before.
  void AdviseHugePages(int64_t bytes);

 private:
  void* data_ = nullptr;
  int64_t size_ = 0;
  int64_t mapped_bytes_ = 0;  // 0: from malloc
};

}  // namespace sok

#endif  // SOK_CC_BASE_HUGE_PAGES_H_
