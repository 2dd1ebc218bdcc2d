// Test support: device memory that runs out.
#ifndef SOK_CUDA_BASE_TESTING_LIMITED_ALLOCATOR_H_
#define SOK_CUDA_BASE_TESTING_LIMITED_ALLOCATOR_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <map>

#include "cc/base/status.h"
#include "cuda/base/allocators.h"

namespace sok {

// Allows `allocations_left` more allocations and at most `limit` bytes in use at a time, and counts them.
class LimitedAllocator : public DeviceAllocator {
 public:
  StatusOr<void*> Allocate(cudaStream_t stream, int64_t bytes) override {
    if (bytes > limit - in_use || allocations_left == 0) {
      return ResourceExhausted(bytes, " bytes where ", limit - in_use, " are left, in ", allocations_left,
                               " allocations");
    }
    --allocations_left;
    StatusOr<void*> memory = allocator_.Allocate(stream, bytes);
    if (memory.ok() && memory.value() != nullptr) {
      bytes_of_[memory.value()] = bytes;
      in_use += bytes;
    }
    return memory;
  }

  void Free(cudaStream_t stream, void* memory) override {
    const auto found = bytes_of_.find(memory);
    if (found == bytes_of_.end()) return;
    in_use -= found->second;
    bytes_of_.erase(found);
    allocator_.Free(stream, memory);
  }

  int64_t limit = INT64_MAX;
  int64_t in_use = 0;
  int64_t allocations_left = INT64_MAX;

 private:
  AsyncAllocator allocator_;
  std::map<void*, int64_t> bytes_of_;
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_TESTING_LIMITED_ALLOCATOR_H_
