#ifndef SOK_CC_TABLE_BLOOM_COUNTERS_H_
#define SOK_CC_TABLE_BLOOM_COUNTERS_H_

#include <cstdint>
#include <utility>

#include "cc/base/huge_pages.h"
#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

// A counting Bloom filter: an array of saturating counters. Each id has `hashes` of them, and its count is
// the smallest one, which is never below what was added for the id unless it is saturated.
//
// The size follows DeepRec: hashes = ceil(log2(1 / p)), counters = ceil(hashes * max_elements / ln 2), so
// that a fraction of about p of `max_elements` ids share all of their counters with other ids.
//
// Thread safety: const members may run at the same time. Move-only.
class BloomCounters {
 public:
  // InvalidArgument unless 1 <= max_elements <= 2^40, 1e-15 <= p < 1, and counter_bits is 8, 16, 32 or 64.
  static Status Check(int64_t max_elements, double p, int counter_bits);

  // The shape of a filter whose arguments pass Check.
  struct Shape {
    int hashes;
    int64_t counters;
  };
  static Shape ShapeOf(int64_t max_elements, double p);

  // The arguments must pass Check. ResourceExhausted if memory runs out.
  static StatusOr<BloomCounters> Create(int64_t max_elements, double p, int counter_bits);

  int hashes() const { return hashes_; }
  int64_t counters() const { return counters_; }
  int counter_bits() const { return counter_bits_; }
  // The largest value of a counter; of 64 bits 2^63 - 1.
  int64_t max_count() const { return MaxCount(counter_bits_); }
  static int64_t MaxCount(int counter_bits) {
    return counter_bits == 64 ? INT64_MAX : (int64_t{1} << counter_bits) - 1;
  }

  int64_t Count(int64_t id) const;
  // Adds count >= 0 to each of the id's counters.
  void Add(int64_t id, int64_t count);

  // The counters in memory order: unsigned, little-endian.
  Span<const char> bytes() const { return {static_cast<const char*>(memory_.data()), memory_.size()}; }
  Span<char> mutable_bytes() { return {static_cast<char*>(memory_.data()), memory_.size()}; }
  // Raises each counter in [first, first + n) to at least its value in `bytes`, n counters: merges the
  // filters of several ranks. InvalidArgument if they do not fit.
  Status MergeMax(int64_t first, Span<const char> bytes);

 private:
  BloomCounters(const Shape& shape, int counter_bits, PageBuffer memory)
      : hashes_(shape.hashes),
        counters_(shape.counters),
        counter_bits_(counter_bits),
        memory_(std::move(memory)) {}

  int hashes_;
  int64_t counters_;
  int counter_bits_;
  PageBuffer memory_;
};

}  // namespace sok

#endif  // SOK_CC_TABLE_BLOOM_COUNTERS_H_
