// What kernels find out about a group's bags, as 64-bit words that the host reads in its round trip.
#ifndef SOK_CUDA_BAGS_BAGS_REPORT_H_
#define SOK_CUDA_BAGS_BAGS_REPORT_H_

#include <cstdint>

#include "cc/base/host_device.h"

namespace sok {

// The possible errors of a lookup, in order of precedence: the first one is reported. Each comes with the
// number of the wrong element.
enum class BagError {
  kIndex,        // a sparse id, in a row beyond the bags
  kSplitsBegin,  // 0: the first row split
  kSplitsFall,   // a row split, less than the one before
  kSplitsEnd,    // the last row split
  kPlaces,       // a word of the indices or row splits, in which those of the weights differ
  kWeight,       // a weight, not finite
};

// An error as one word. Words compare by lookup, then by kind, then by number, so the lowest is the first
// error.
struct BagErrorWord {
  static constexpr int kNumberBits = 36;  // two words for each of 2^31 ids
  static constexpr int kKindBits = 4;
  static constexpr uint64_t kNone = ~uint64_t{0};

  static SOK_HOST_DEVICE uint64_t Of(int lookup, BagError error, int64_t number) {
    return (static_cast<uint64_t>(lookup) << kKindBits | static_cast<uint64_t>(error)) << kNumberBits |
           static_cast<uint64_t>(number);
  }
  static int Lookup(uint64_t word) { return static_cast<int>(word >> (kNumberBits + kKindBits)); }
  static BagError Error(uint64_t word) {
    return static_cast<BagError>(word >> kNumberBits & ((1u << kKindBits) - 1));
  }
  static int64_t Number(uint64_t word) {
    return static_cast<int64_t>(word & ((uint64_t{1} << kNumberBits) - 1));
  }
};

// Bits of a lookup's flags.
constexpr unsigned kUnsorted = 1;    // its indices are not in order
constexpr unsigned kNotOneEach = 2;  // some bag b does not consist of id b alone
constexpr unsigned kHasLongBag = 4;  // some bag may have kIdsOfLongBag ids or more

// kLongBag of cuda/pooling/pool.h.
constexpr int64_t kIdsOfLongBag = 1024;

// The words of a group of tables and lookups, on the device or copied to the host. Lookups are in the order
// of their occurrences.
class BagsReport {
 public:
  BagsReport() = default;
  BagsReport(int64_t* words, int num_tables, int num_lookups)
      : words_(words), num_tables_(num_tables), num_lookups_(num_lookups) {}

  static int64_t SizeFor(int num_tables, int num_lookups) {
    return 3 + num_tables + 2 * int64_t{num_lookups};
  }

  SOK_HOST_DEVICE int num_tables() const { return num_tables_; }
  SOK_HOST_DEVICE int num_lookups() const { return num_lookups_; }

  // A BagErrorWord.
  SOK_HOST_DEVICE uint64_t* error() const { return reinterpret_cast<uint64_t*>(words_); }
  // [num_tables + 1]: the occurrences of table t are [table_begin[t], table_begin[t + 1]).
  SOK_HOST_DEVICE int64_t* table_begin() const { return words_ + 1; }
  // [num_lookups + 1]: likewise of each lookup.
  SOK_HOST_DEVICE int64_t* lookup_begin() const { return table_begin() + num_tables_ + 1; }
  // [num_lookups].
  SOK_HOST_DEVICE uint64_t* flags() const {
    return reinterpret_cast<uint64_t*>(lookup_begin() + num_lookups_ + 1);
  }

 private:
  int64_t* words_ = nullptr;
  int num_tables_ = 0;
  int num_lookups_ = 0;
};

}  // namespace sok

#endif  // SOK_CUDA_BAGS_BAGS_REPORT_H_
