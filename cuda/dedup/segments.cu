#include <limits>

#include "cuda/base/device_buffer.h"
#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/dedup/segments.h"
#include "cuda/scan/fill_runs.h"
#include "cuda/scan/stable_sort.h"

namespace sok {
namespace {

__global__ __launch_bounds__(kThreadsPerBlock) void PositionsKernel(int64_t n, int32_t* positions) {
  for (int64_t p = ThreadOfGrid(); p < n; p += ThreadsOfGrid()) positions[p] = static_cast<int32_t>(p);
}

// The k-th of the sorted occurrences writes the begins of the segments after the previous occurrence's, up to
// its own. One extra item after the last writes the rest. In whole warps, as FillRuns requires.
__global__ __launch_bounds__(kThreadsPerBlock) void BeginsKernel(const uint32_t* sorted, int64_t n,
                                                                 int64_t unique, int32_t* begin) {
  for (int64_t k = ThreadOfGrid(); k - threadIdx.x % 32 <= n; k += ThreadsOfGrid()) {
    Run run = {0, 0, static_cast<int32_t>(k)};
    if (k <= n) {
      run.begin = k == 0 ? 0 : static_cast<int64_t>(sorted[k - 1]) + 1;
      run.end = k == n ? unique + 1 : static_cast<int64_t>(sorted[k]) + 1;
    }
    FillRuns(begin, run);
  }
}

}  // namespace

Status SortIntoSegments(cudaStream_t stream, DeviceAllocator* scratch, const int32_t* inverse,
                        int64_t occurrences, int64_t unique, const SegmentArrays& segments) {
  if (occurrences > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("a lookup takes at most 2^31 - 1 ids, got ", occurrences);
  }
  StatusOr<DeviceBuffer<uint32_t>> sorted = DeviceBuffer<uint32_t>::Allocate(scratch, stream, occurrences);
  SOK_RETURN_IF_ERROR(sorted.status());
  StatusOr<DeviceBuffer<int32_t>> positions = DeviceBuffer<int32_t>::Allocate(scratch, stream, occurrences);
  SOK_RETURN_IF_ERROR(positions.status());
  SOK_RETURN_IF_ERROR(Launch("Positions", stream, ShapeFor(occurrences), PositionsKernel, occurrences,
                             positions.value().data()));
  SOK_RETURN_IF_ERROR(StableSort(stream, scratch, occurrences, unique,
                                 reinterpret_cast<const uint32_t*>(inverse), positions.value().data(),
                                 sorted.value().data(), segments.positions));
  return Launch("Begins", stream, ShapeFor(occurrences + 1), BeginsKernel, sorted.value().data(), occurrences,
                unique, segments.begin);
}

}  // namespace sok
