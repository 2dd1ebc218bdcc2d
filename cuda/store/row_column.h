// One value per row beside a DeviceRowStore, such as the step of a row's last update or its key.
#ifndef SOK_CUDA_STORE_ROW_COLUMN_H_
#define SOK_CUDA_STORE_ROW_COLUMN_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cc/base/host_device.h"
#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/store/device_slabs.h"

namespace sok {

// A column as kernels see it.
template <typename T>
struct ColumnView {
  SlabsView slabs;

  // Whether there is no column.
  SOK_HOST_DEVICE bool is_null() const { return slabs.slabs == nullptr; }

  SOK_HOST_DEVICE T& operator[](int64_t row) const { return *reinterpret_cast<T*>(slabs.at(row)); }
};

// One T for each row, zero bytes until written. Order of work, thread safety and memory are as for
// DeviceSlabs. Move-only.
template <typename T>
class DeviceColumn {
  static_assert(std::is_trivially_copyable_v<T>, "values start as zero bytes and are copied byte by byte");

 public:
  explicit DeviceColumn(DeviceAllocator* allocator)
      : slabs_(sizeof(T), DeviceSlabs::Fresh::kZeroBytes, allocator, allocator, kSlabBytes) {}

  // Makes rows [0, rows) addressable; ResourceExhausted if memory runs out. Never shrinks.
  Status Reserve(cudaStream_t stream, int64_t rows) { return slabs_.Reserve(stream, rows); }

  // For kernels that are enqueued on the stream before the next Reserve.
  ColumnView<T> view() const { return {slabs_.view()}; }

  int64_t rows() const { return slabs_.size(); }
  int64_t bytes() const { return slabs_.bytes(); }

 private:
  static constexpr int64_t kSlabBytes = int64_t{4} << 20;

  DeviceSlabs slabs_;
};

}  // namespace sok

#endif  // SOK_CUDA_STORE_ROW_COLUMN_H_
