// The rows of a table as kernels see them.
#ifndef SOK_CUDA_STORE_ROW_STORE_VIEW_H_
#define SOK_CUDA_STORE_ROW_STORE_VIEW_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/host_device.h"
#include "cc/table/record_layout.h"

namespace sok {

// Row r has a record of `record_bytes` bytes, with the layout of RecordLayout and padding: [weights | slot 0
// | slot 1 ... | padding], which are floats, or numbers of the types that `shape` says. In a table,
// `record_bytes` is a multiple of 16, so every record is aligned to 16 bytes. Valid for kernels that are
// enqueued on the stream before the next Reserve or SetSlots.
struct RowStoreView {
  char* const* slabs = nullptr;  // in device memory; record r is number (r & mask) of slab r >> bits
  int64_t mask = 0;
  int64_t record_bytes = 0;
  int64_t dim = 0;               // weights
  int64_t width = 0;             // numbers of weights and slots
  const float* fills = nullptr;  // [width - dim]: what the slots of a new row hold; in device memory
  int bits = 0;
  RecordShape shape;

  SOK_HOST_DEVICE char* Record(int64_t row) const { return slabs[row >> bits] + (row & mask) * record_bytes; }
  // Of records of floats.
  SOK_HOST_DEVICE float* FloatsOf(int64_t row) const { return reinterpret_cast<float*>(Record(row)); }
};

}  // namespace sok

#endif  // SOK_CUDA_STORE_ROW_STORE_VIEW_H_
