#include "cuda/base/pinned_allocator.h"

#include <algorithm>
#include <utility>

namespace sok {

PinnedAllocator::~PinnedAllocator() {
  for (const Freed& freed : freed_) {
    // After an error of the device nothing uses the memory any more.
    (void)freed.last_use.Wait().ok();
  }
}

StatusOr<void*> PinnedAllocator::Allocate(cudaStream_t, int64_t bytes) {
  if (bytes == 0) return static_cast<void*>(nullptr);
  const MutexLock lock(mutex_);
  ReleaseFreed();
  StatusOr<PinnedBuffer<char>> buffer = PinnedBuffer<char>::Allocate(bytes);
  if (!buffer.ok()) return buffer.status();
  void* const memory = buffer.value().data();
  allocated_.emplace(memory, std::move(buffer.value()));
  return memory;
}

void PinnedAllocator::Free(cudaStream_t stream, void* memory) {
  if (memory == nullptr) return;
  const MutexLock lock(mutex_);
  const auto found = allocated_.find(memory);
  Freed freed{std::move(found->second), Event()};
  allocated_.erase(found);
  // If no event can be recorded, the device is lost, and nothing uses the memory any more.
  if (freed.last_use.Record(stream).ok()) freed_.push_back(std::move(freed));
  ReleaseFreed();
}

void PinnedAllocator::ReleaseFreed() {
  freed_.erase(std::remove_if(freed_.begin(), freed_.end(),
                              [](const Freed& freed) { return freed.last_use.IsDone(); }),
               freed_.end());
}

}  // namespace sok
