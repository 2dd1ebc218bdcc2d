// Sorts items by numbers computed from them. Only .cu files include this header.
#ifndef SOK_CUDA_SCAN_ITEM_SORTER_H_
#define SOK_CUDA_SCAN_ITEM_SORTER_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/scan/stable_sort.h"

namespace sok {
namespace item_sorter_internal {

template <typename Number>
__global__ void __launch_bounds__(kThreadsPerBlock)
    WordsKernel(Number number, int shift, uint32_t mask, const int32_t* items, int64_t n, uint32_t* words) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    words[i] = static_cast<uint32_t>(number(items[i]) >> shift) & mask;
  }
}

}  // namespace item_sorter_internal

// Items of 32 bits, on the device, sorted by one number after another. Sorts are stable, so the last one is
// the most significant. Numbers of more than 32 bits are sorted by their low words, then by their high words:
// all sorts use StableSort, because each instantiation of a radix sort takes as long to compile as most other
// files.
class ItemSorter {
 public:
  // `n` items, below 2^31.
  ItemSorter(cudaStream_t stream, DeviceAllocator* scratch, int64_t n)
      : stream_(stream), scratch_(scratch), n_(n) {}

  // Must be called first. ResourceExhausted if `scratch` runs out of memory; it takes 16 bytes per item.
  Status Reserve() {
    for (DeviceBuffer<int32_t>* items : {&items_, &sorted_items_}) SOK_RETURN_IF_ERROR(Allocate(items));
    for (DeviceBuffer<uint32_t>* words : {&words_, &sorted_words_}) SOK_RETURN_IF_ERROR(Allocate(words));
    return OkStatus();
  }

  // [n]: the caller writes them before the first sort.
  int32_t* items() const { return items_.data(); }

  // number(item), a device function, gives the item's number as uint64_t, of which the low `bits` (1 to 64)
  // are compared. ResourceExhausted if `scratch` runs out of memory; a sort takes about 8 bytes per item.
  template <typename Number>
  Status SortBy(const Number& number, int bits) {
    for (int shift = 0; shift < bits; shift += 32) {
      const int64_t num_keys = int64_t{1} << std::min(bits - shift, 32);
      SOK_RETURN_IF_ERROR(Launch("NumbersOfItems", stream_, ShapeFor(n_),
                                 item_sorter_internal::WordsKernel<Number>, number, shift,
                                 static_cast<uint32_t>(num_keys - 1), items_.data(), n_, words_.data()));
      SOK_RETURN_IF_ERROR(StableSort(stream_, scratch_, n_, num_keys, words_.data(), items_.data(),
                                     sorted_words_.data(), sorted_items_.data()));
      std::swap(items_, sorted_items_);
    }
    return OkStatus();
  }

 private:
  template <typename T>
  Status Allocate(DeviceBuffer<T>* buffer) {
    SOK_ASSIGN_OR_RETURN(*buffer, DeviceBuffer<T>::Allocate(scratch_, stream_, n_));
    return OkStatus();
  }

  cudaStream_t stream_;
  DeviceAllocator* scratch_;
  int64_t n_;
  DeviceBuffer<int32_t> items_;
  DeviceBuffer<int32_t> sorted_items_;
  DeviceBuffer<uint32_t> words_;
  DeviceBuffer<uint32_t> sorted_words_;
};

}  // namespace sok

#endif  // SOK_CUDA_SCAN_ITEM_SORTER_H_
