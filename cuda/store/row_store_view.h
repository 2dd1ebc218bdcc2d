// The rows of a table as kernels see them.
#ifndef SOK_CUDA_STORE_ROW_STORE_VIEW_H_
#define SOK_CUDA_STORE_ROW_STORE_VIEW_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/host_device.h"

namespace sok {

// Row r has a record of `stride` floats, [weights | slot 0 | slot 1 ... | padding], of which the first
// `width` are used. `stride` is a multiple of 4, so every record is aligned to 16 bytes. Valid for kernels
// that are enqueued on the stream before the next Reserve or SetSlots.
struct RowStoreView {
  char* const* slabs = nullptr;  // in device memory; record r is number (r & mask) of slab r >> bits
  int64_t mask = 0;
  int64_t stride = 0;
  int64_t dim = 0;               // weights
  int64_t width = 0;             // weights and slots
  const float* fills = nullptr;  // [width - dim]: what the slots of a new row hold; in device memory
  int bits = 0;

  SOK_HOST_DEVICE float* Record(int64_t row) const {
    return reinterpret_cast<float*>(slabs[row >> bits]) + (row & mask) * stride;
  }
};

}  // namespace sok

#endif  // SOK_CUDA_STORE_ROW_STORE_VIEW_H_
