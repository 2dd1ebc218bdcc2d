// Memory for records that grows without moving them.
#ifndef SOK_CUDA_STORE_DEVICE_SLABS_H_
#define SOK_CUDA_STORE_DEVICE_SLABS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include "cc/base/host_device.h"
#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"

namespace sok {

// A kernel's view of slabs of 2^bits records each: record r is number (r & mask) of slab r >> bits.
struct SlabsView {
  char* const* slabs = nullptr;  // in device memory
  int64_t mask = 0;              // 2^bits - 1
  int64_t record_bytes = 0;
  int bits = 0;

  SOK_HOST_DEVICE char* at(int64_t record) const {
    return slabs[record >> bits] + (record & mask) * record_bytes;
  }
};

// Records of a fixed size, numbered from 0. They are in slabs of about 32 MiB that never move, so that
// growing needs no memory for a second table. Only a first slab that is not full-sized is replaced by a
// larger one, so that a small table takes little memory.
//
// Memory comes from two allocators: one for the slabs, which may give pinned host memory, and one for the
// addresses of slabs, which must give device memory. Both must outlive this object.
//
// All work on the records is in the order of one stream, or of streams that wait for each other. One thread
// at a time. Move-only.
class DeviceSlabs {
 public:
  // The content of records that were never written.
  enum class Fresh { kAnything, kZeroBytes };

  static constexpr int64_t kSlabBytes = int64_t{32} << 20;

  // Records of `record_bytes` > 0. A slab has at most `slab_bytes`, or one record.
  DeviceSlabs(int64_t record_bytes, Fresh fresh, DeviceAllocator* slabs, DeviceAllocator* addresses,
              int64_t slab_bytes = kSlabBytes);

  // Makes the records [0, n) addressable. Never shrinks. ResourceExhausted if memory runs out; nothing has
  // changed then.
  Status Reserve(cudaStream_t stream, int64_t n);

  // For kernels that are enqueued on the stream before the next Reserve.
  SlabsView view() const { return {addresses_.data(), (int64_t{1} << bits_) - 1, record_bytes_, bits_}; }

  // Sets the stream on which the memory will be freed. Every use must come before later work on that stream.
  void set_stream(cudaStream_t stream);

  int64_t size() const { return size_; }  // records that are addressable
  int64_t bytes() const;                  // allocated
  int64_t record_bytes() const { return record_bytes_; }

 private:
  int64_t records_per_slab() const { return int64_t{1} << bits_; }
  int64_t capacity() const;  // records that fit into the slabs there are
  // Allocates the slabs [first, end), slab 0 with room for `first_records`.
  StatusOr<std::vector<DeviceBuffer<char>>> AllocateSlabs(cudaStream_t stream, int64_t first, int64_t end,
                                                          int64_t first_records);

  int64_t record_bytes_;
  Fresh fresh_;
  int bits_;
  DeviceAllocator* slab_allocator_;
  DeviceAllocator* address_allocator_;
  int64_t size_ = 0;
  std::vector<DeviceBuffer<char>> slabs_;
  DeviceBuffer<char*> addresses_;  // with room for more
};

// One value per row beside a DeviceRowStore, such as the step of a row's last update or its key.

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

#endif  // SOK_CUDA_STORE_DEVICE_SLABS_H_
