// Stands in for CUDA's cooperative groups: blocks, and tiles of at most a warp.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_COOPERATIVE_GROUPS_H_
#define SOK_CUDA_ON_HOST_INCLUDE_COOPERATIVE_GROUPS_H_

#include "cuda_runtime.h"

namespace cooperative_groups {

class thread_block {
 public:
  static unsigned thread_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  }
  static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned size() { return num_threads(); }
  static void sync(SOK_CALLED_AT) { __syncthreads(place); }
  static dim3 group_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
  static dim3 thread_index() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
};
inline thread_block this_thread_block() { return {}; }

template <unsigned kSize, typename Parent = void>
class thread_block_tile {
  static_assert(kSize >= 1 && kSize <= 32 && (kSize & (kSize - 1)) == 0, "a tile is a power of two of lanes");

 public:
  thread_block_tile() = default;
  // A tile whose type does not name what it is a part of.
  template <typename Other, typename = std::enable_if_t<std::is_void_v<Parent> && !std::is_void_v<Other>>>
  thread_block_tile(const thread_block_tile<kSize, Other>&) {}  // NOLINT: as CUDA's

  static unsigned thread_rank() { return thread_block::thread_rank() % kSize; }
  static constexpr unsigned num_threads() { return kSize; }
  static constexpr unsigned size() { return kSize; }
  static unsigned meta_group_rank() { return thread_block::thread_rank() / kSize; }
  static unsigned meta_group_size() { return (thread_block::num_threads() + kSize - 1) / kSize; }

  void sync(SOK_CALLED_AT) const { __syncwarp(mask(), place); }
  template <typename T>
  T shfl(T value, int source, SOK_CALLED_AT) const {
    return InWords(value, [&](auto word) { return __shfl_sync(mask(), word, source, kSize, place); });
  }
  template <typename T>
  T shfl_up(T value, unsigned delta, SOK_CALLED_AT) const {
    return InWords(value, [&](auto word) { return __shfl_up_sync(mask(), word, delta, kSize, place); });
  }
  template <typename T>
  T shfl_down(T value, unsigned delta, SOK_CALLED_AT) const {
    return InWords(value, [&](auto word) { return __shfl_down_sync(mask(), word, delta, kSize, place); });
  }
  template <typename T>
  T shfl_xor(T value, unsigned lane_mask, SOK_CALLED_AT) const {
    return InWords(value, [&](auto word) {
      return __shfl_xor_sync(mask(), word, static_cast<int>(lane_mask), kSize, place);
    });
  }
  unsigned ballot(int predicate, SOK_CALLED_AT) const {
    return __ballot_sync(mask(), predicate, place) >> first_lane();
  }
  int any(int predicate, SOK_CALLED_AT) const { return ballot(predicate, place) != 0; }
  int all(int predicate, SOK_CALLED_AT) const { return ballot(predicate, place) == lanes(); }
  template <typename T>
  unsigned match_any(T value, SOK_CALLED_AT) const {
    return __match_any_sync(mask(), value, place) >> first_lane();
  }
  template <typename T>
  unsigned match_all(T value, int& all, SOK_CALLED_AT) const {
    return __match_all_sync(mask(), value, &all, place) >> first_lane();
  }

 private:
  static constexpr unsigned lanes() { return kSize == 32 ? 0xffffffffu : (1u << kSize % 32) - 1; }
  static unsigned first_lane() { return thread_block::thread_rank() % 32 / kSize * kSize; }
  static unsigned mask() { return lanes() << first_lane(); }

  // Tiles move values of any size, in words of 32 bits.
  template <typename T, typename Move>
  static T InWords(const T& value, const Move& move) {
    static_assert(std::is_trivially_copyable_v<T>);
    if constexpr (sizeof(T) <= 8) {
      return sok::on_host::FromBits<T>(move(static_cast<unsigned long long>(sok::on_host::ToBits(value))));
    } else {
      unsigned words[(sizeof(T) + 3) / 4] = {};
      std::memcpy(words, &value, sizeof(T));
      for (unsigned& word : words) word = move(word);
      T moved;
      std::memcpy(&moved, words, sizeof(T));
      return moved;
    }
  }
};

template <unsigned kSize, typename Parent>
thread_block_tile<kSize, Parent> tiled_partition(const Parent&) {
  return {};
}

// The combination of the values of all lanes, in every lane. Combined as a tree of pairs of neighbours.
template <typename T>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <typename T>
struct less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <typename T>
struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <unsigned kSize, typename Parent, typename T, typename Combine>
T reduce(const thread_block_tile<kSize, Parent>& tile, T value, const Combine& combine, SOK_CALLED_AT) {
  for (unsigned delta = 1; delta < kSize; delta *= 2)
    value = combine(value, tile.shfl_xor(value, delta, place));
  return value;
}

}  // namespace cooperative_groups

#endif  // SOK_CUDA_ON_HOST_INCLUDE_COOPERATIVE_GROUPS_H_
