// DeviceRadixSort: stable, by the bits [begin_bit, end_bit) of the key. Signed and floating-point keys sort
// as numbers if all bits are used.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUB_DEVICE_DEVICE_RADIX_SORT_CUH_
#define SOK_CUDA_ON_HOST_INCLUDE_CUB_DEVICE_DEVICE_RADIX_SORT_CUH_

#include "cub/device/device_scan.cuh"

namespace cub {

namespace on_host_internal {

// Whether two arrays share bytes.
inline bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

template <size_t kBytes>
using WordOf = std::conditional_t<kBytes == 8, uint64_t, std::conditional_t<kBytes == 4, uint32_t, uint16_t>>;

// The key's bits as an unsigned number that sorts like the key.
template <typename Key>
WordOf<sizeof(Key)> SortedBits(Key key) {
  using Word = WordOf<sizeof(Key)>;
  constexpr Word kSign = Word{1} << (sizeof(Key) * 8 - 1);
  const Word bits = static_cast<Word>(sok::on_host::ToBits(key));
  if constexpr (std::is_floating_point_v<Key>)
    return (bits & kSign) != 0 ? static_cast<Word>(~bits) : bits ^ kSign;
  return std::is_signed_v<Key> ? bits ^ kSign : bits;
}

template <typename Key>
struct RadixSort {
  const Key* keys;
  int begin_bit, end_bit;

  WordOf<sizeof(Key)> Digits(Key key) const {
    using Word = WordOf<sizeof(Key)>;
    const Word bits = SortedBits(key);
    const int width = end_bit - begin_bit;
    const Word mask = width >= static_cast<int>(sizeof(Key) * 8) ? ~Word{0} : (Word{1} << width) - 1;
    return (bits >> begin_bit) & mask;
  }
  bool Before(size_t a, size_t b) const { return Digits(keys[a]) < Digits(keys[b]); }

  // Merges the runs [begin, middle) and [middle, end) of `from`; equal keys stay in order.
  void Merge(const uint32_t* from, uint32_t* to, size_t begin, size_t middle, size_t end) const {
    size_t left = begin, right = middle;
    for (size_t i = begin; i < end; ++i) {
      const bool takes_right = left == middle || (right < end && Before(from[right], from[left]));
      to[i] = from[takes_right ? right++ : left++];
    }
  }

  // Writes the order of the keys to one of the arrays of n; returns which.
  uint32_t* Order(uint32_t* order, uint32_t* other, size_t n) const {
    for (size_t i = 0; i < n; ++i) order[i] = static_cast<uint32_t>(i);
    for (size_t width = 1; width < n; width *= 2) {
      for (size_t begin = 0; begin < n; begin += 2 * width) {
        Merge(order, other, begin, min(begin + width, n), min(begin + 2 * width, n));
      }
      std::swap(order, other);
    }
    return order;
  }
};

// The arguments of a call of DeviceRadixSort.
template <typename Key, typename Value>
struct SortCall {
  const Key* keys_in;
  Key* keys_out;
  const Value* values_in;
  Value* values_out;
  size_t n;
  int begin_bit, end_bit;
};

template <typename Key, typename Value>
cudaError_t Sort(void* memory, size_t& bytes, const SortCall<Key, Value>& call, cudaStream_t stream) {
  constexpr int kBits = sizeof(Key) * 8;
  if (call.begin_bit < 0 || call.end_bit > kBits || call.begin_bit > call.end_bit)
    return cudaErrorInvalidValue;
  if (call.n > 0xffffffffu) return cudaErrorInvalidValue;
  if (memory != nullptr && call.n > 0) {
    if (Overlap(call.keys_in, call.n * sizeof(Key), call.keys_out, call.n * sizeof(Key))) {
      sok::on_host::Report({}, "cub::DeviceRadixSort sorts keys into an array that overlaps its input");
    }
    if (Overlap(call.values_in, call.n * sizeof(Value), call.values_out, call.n * sizeof(Value))) {
      sok::on_host::Report({}, "cub::DeviceRadixSort sorts values into an array that overlaps its input");
    }
  }
  // The memory need not be aligned.
  const auto aligned = (reinterpret_cast<uintptr_t>(memory) + 7) / 8 * 8;
  auto* const order = reinterpret_cast<uint32_t*>(aligned);
  return Run(memory, bytes, 2 * call.n * sizeof(uint32_t) + 8, stream, [=] {
    const RadixSort<Key> sort = {call.keys_in, call.begin_bit, call.end_bit};
    const uint32_t* const sorted = sort.Order(order, order + call.n, call.n);
    for (size_t i = 0; i < call.n; ++i) {
      call.keys_out[i] = call.keys_in[sorted[i]];
      call.values_out[i] = call.values_in[sorted[i]];
    }
  });
}

}  // namespace on_host_internal

struct DeviceRadixSort {
  template <typename Key, typename Value, typename N>
  static cudaError_t SortPairs(void* memory, size_t& bytes, const Key* keys_in, Key* keys_out,
                               const Value* values_in, Value* values_out, N n, int begin_bit = 0,
                               int end_bit = sizeof(Key) * 8, cudaStream_t stream = nullptr) {
    return on_host_internal::Sort<Key, Value>(
        memory, bytes, {keys_in, keys_out, values_in, values_out, static_cast<size_t>(n), begin_bit, end_bit},
        stream);
  }
};

}  // namespace cub

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUB_DEVICE_DEVICE_RADIX_SORT_CUH_
