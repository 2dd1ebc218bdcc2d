#include "cuda/engine/kept_memory.h"

#include "cuda/table/device_table.h"

namespace sok {
namespace {

// Orders later work on `next` after the work that is on `first` now.
Status OrderStreams(cudaStream_t first, cudaStream_t next) {
  StreamOrder order;
  order.Leave(first);
  return order.Enter(next);
}

}  // namespace

StatusOr<void*> KeptMemory::Allocate(cudaStream_t stream, int64_t bytes) {
  if (bytes == 0) return static_cast<void*>(nullptr);
  StatusOr<void*> memory = memory_.Allocate(stream_, bytes);
  if (!memory.ok()) return memory.status();
  const Status ordered = OrderStreams(stream_, stream);
  if (ordered.ok()) return memory;
  memory_.Free(stream_, memory.value());
  return ordered;
}

void KeptMemory::Free(cudaStream_t stream, void* memory) {
  if (memory == nullptr) return;
  // This fails only if the device is lost; then nothing uses the memory any more.
  (void)OrderStreams(stream, stream_).ok();
  memory_.Free(stream_, memory);
}

}  // namespace sok
