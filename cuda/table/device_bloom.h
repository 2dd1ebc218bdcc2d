// The counting Bloom filter of cc/cpu/table/bloom_counters.h on the device.
#ifndef SOK_CUDA_TABLE_DEVICE_BLOOM_H_
#define SOK_CUDA_TABLE_DEVICE_BLOOM_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/table/table_options.h"
#include "cuda/base/device_buffer.h"

namespace sok {

// A kernel's view of the filter.
struct BloomView {
  void* counters = nullptr;  // `count` counters of `bits` bits, unsigned and little-endian
  int64_t count = 0;
  int hashes = 0;
  int bits = 0;
  uint64_t max_count = 0;
};

// Order of work, thread safety and memory are as for KeyDirectory. Move-only.
class DeviceBloom {
 public:
  explicit DeviceBloom(DeviceAllocator* allocator) : allocator_(allocator) {}

  // Makes a filter of zeros for `admission`, which is kBloom and valid. ResourceExhausted if memory runs out.
  Status Init(cudaStream_t stream, const Admission& admission);

  BloomView view() const { return view_; }
  // Of the counters, in whole blocks: see BloomCounters.
  int64_t bytes() const { return memory_.bytes(); }

  // Adds counts[which[i]] to each of the counters of keys[which[i]], for i in [0, n). The order of ids makes
  // no difference. All arrays are on the device.
  Status Add(cudaStream_t stream, const int64_t* keys, const int32_t* counts, const int32_t* which,
             int64_t n);
  // Raises the count of keys[i] to counts[i], one id after the other.
  Status RaiseTo(cudaStream_t stream, const int64_t* keys, const int64_t* counts, int64_t n);
  // BloomCounters::MergeMax, for distinct blocks, on the host. Waits for the device.
  Status MergeMax(cudaStream_t stream, DeviceAllocator* scratch, Span<const int64_t> blocks,
                  Span<const char> bytes);

 private:
  DeviceAllocator* allocator_;
  DeviceBuffer<uint64_t> memory_;
  BloomView view_;
};

}  // namespace sok

#endif  // SOK_CUDA_TABLE_DEVICE_BLOOM_H_
