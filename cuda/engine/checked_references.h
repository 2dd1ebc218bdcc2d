#ifndef SOK_CUDA_ENGINE_CHECKED_REFERENCES_H_
#define SOK_CUDA_ENGINE_CHECKED_REFERENCES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/round_trip.h"
#include "cuda/table/device_table.h"

namespace sok {

// The rows of references to one table, in scratch that lives as long as this object.
class CheckedReferences {
 public:
  // Enqueues work on the stream that writes rows(): kAbsentRow for a row that was freed since, and for
  // references that are kAbsentRow. `may_be_absent`: Check accepts the latter.
  Status Enqueue(cudaStream_t stream, DeviceAllocator* scratch, const DeviceTable& table,
                 Span<const int64_t> references, bool may_be_absent);
  // InvalidArgument for the first reference to a row that the table never had. Waits.
  Status Check(cudaStream_t stream, const DeviceTable& table, RoundTrip* round_trip);

  const int64_t* rows() const { return rows_.data(); }
  // After Check: the position of the first reference whose row was freed since; the number of references if
  // there is none.
  int64_t first_stale() const { return first_stale_; }

 private:
  Span<const int64_t> references_;
  DeviceBuffer<int64_t> rows_;
  DeviceBuffer<uint64_t> firsts_;
  int64_t first_stale_ = 0;
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_CHECKED_REFERENCES_H_
