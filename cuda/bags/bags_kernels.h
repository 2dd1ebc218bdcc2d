// The passes that make bags. Each enqueues its work on the stream.
#ifndef SOK_CUDA_BAGS_BAGS_KERNELS_H_
#define SOK_CUDA_BAGS_BAGS_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/host_device.h"
#include "cc/base/status.h"
#include "cc/lookup/lookup_input.h"
#include "cuda/base/device_buffer.h"

namespace sok {

// What kernels find out about a group's bags, as 64-bit words that the host reads in its round trip.

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

// A group's lookups as the kernels of this folder see them. All pointers are to device memory.

// One lookup. Its ids come in the order of its bags.
struct InputView {
  LookupInput input;
  IdLayout layout = IdLayout::kDense;  // kRagged with narrow splits
  bool weighted = false;
  bool drops_ids = false;        // leaves out ids whose weight is not above zero
  bool has_order = false;        // GroupView::order is needed
  bool may_be_one_each = false;  // as many ids as bags, and kNotOneEach is needed
  int number = 0;                // the lookup's position in the caller's group
  // [num_ids]: the caller's position of each id. Null if that is the id's own number.
  const int32_t* order = nullptr;
  int64_t first_id = 0;          // the ids of the lookups before it
  int64_t first_bag = 0;         // their bag_begin entries
  int32_t* bag_begin = nullptr;  // [num_bags + 1]; null if nothing is pooled
};

// All lookups of a group: first those of table 0, then those of table 1, and so on. Ids are numbered in this
// order, whether they stay in their bags or not. Occurrences, the ids that stay, are numbered in the same
// order.
struct GroupView {
  int num_lookups = 0;
  const InputView* lookups = nullptr;  // [num_lookups]
  const int64_t* first_id = nullptr;   // [num_lookups + 1]
  const int64_t* table_id = nullptr;   // [num_tables + 1]: the number of ids of the tables before
  // The number of blocks that read ids, and of blocks that read row splits, of the lookups before:
  // [num_lookups + 1] each.
  const int64_t* id_tiles = nullptr;
  const int64_t* split_tiles = nullptr;
  // [num_lookups + 1]: the number of ids in the lookups before that have to be sorted by bag.
  const int64_t* first_sorted = nullptr;

  // One entry per occurrence. Null if not needed.
  int64_t* keys = nullptr;
  float* weights = nullptr;
  int32_t* order = nullptr;
  BagsReport report;
};

// The number of ids or row splits that a block reads.
constexpr int kBagTile = 1024;

// The keys by which ids are sorted, for all lookups with `first_sorted` at once: keys[k] is the number of a
// bag among the bags of all lookups, given[k] the id's position in its lookup. There are `n` of them.
Status WriteSortKeys(cudaStream_t stream, const GroupView& group, int64_t n, uint32_t* keys, int32_t* given);

struct BagPasses {
  int64_t num_ids = 0;      // of all lookups
  int64_t id_tiles = 0;     // blocks that read ids
  int64_t split_tiles = 0;  // blocks that read row splits
  bool drops_ids = false;   // whether some lookup drops ids
};

// Checks the inputs and writes the arrays and the report of `group`. Errors in the inputs are reported, and
// the arrays must then not be used: even so, keys are written for all occurrences, and nothing is read or
// written out of bounds.
Status WriteBags(cudaStream_t stream, DeviceAllocator* scratch, const GroupView& group,
                 const BagPasses& passes);

}  // namespace sok

#endif  // SOK_CUDA_BAGS_BAGS_KERNELS_H_
