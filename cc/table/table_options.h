#ifndef SOK_CC_TABLE_TABLE_OPTIONS_H_
#define SOK_CC_TABLE_TABLE_OPTIONS_H_

#include <cstdint>
#include <string>

#include "cc/base/status.h"
#include "cc/initializers/initializer.h"
#include "cc/placement/placement.h"

namespace sok {

// What a bounded table does when a training lookup has more new keys than room.
enum class OnFull {
  kError,     // the lookup fails
  kEvictLru,  // the rows go whose last training lookup is longest ago
  kEvictLfu,  // the rows go that were looked up least often
};

// "error", "evict_lru" or "evict_lfu".
const char* NameOf(OnFull on_full);

// Which keys get rows: those that training lookups have seen at least `filter_freq` times, the lookup under
// way included. The others read as `default_value` in every column and are not trained.
struct Admission {
  enum class Kind {
    kNone,     // every key, at once
    kCounter,  // counts exactly
    kBloom,    // counts in a Bloom filter of fixed size, which errs upwards; see BloomCounters
  };
  Kind kind = Kind::kNone;
  int64_t filter_freq = 0;  // below 2: all keys
  float default_value = 0.0f;
  // kBloom; for the keys of one rank.
  int64_t max_element_size = 0;
  double false_positive_probability = 0.01;
  int counter_bits = 64;
};

// Which rows go when a checkpoint is written.
struct Eviction {
  enum class Kind {
    kNone,
    kGlobalStep,  // those not updated for more than `steps_to_live` of the table's steps()
    kL2Weight,    // those with 0.5 * sum of w^2 < l2_weight_threshold
  };
  Kind kind = Kind::kNone;
  int64_t steps_to_live = 0;
  float l2_weight_threshold = 0.0f;
};

// What a table is made from. Everything here is fixed for the table's life.
struct TableOptions {
  // Rows up to 1 GiB: the bytes of 2^31 of them still fit 64 bits.
  static constexpr int64_t kMaxDim = int64_t{1} << 28;

  std::string name;           // the variable's unique name; every error names it
  int64_t dim = 0;            // floats in a row, in [1, kMaxDim]
  int64_t capacity = 0;       // the most rows of a rank; 0 grows without bound
  bool use_hashtable = true;  // false: the key tells the row (StaticRows), and capacity is needed
  int rank = 0;               // this rank among `ranks`
  int ranks = 1;
  Placement placement = {};  // which rank holds which key
  Initializer initializer = {};
  std::string key_dtype = "int64";  // of the ids that callers look up; the table itself holds int64
  // All three need use_hashtable.
  OnFull on_full = OnFull::kError;  // evicting needs a capacity
  Admission admission = {};
  Eviction eviction = {};
};

// InvalidArgument, which names the variable and the value, unless a table can be made from `options`.
Status CheckOptions(const TableOptions& options);

// Everything of `options` but the rank, in words, for errors: ranks whose tables are the same have the same
// text.
std::string Describe(const TableOptions& options);

}  // namespace sok

#endif  // SOK_CC_TABLE_TABLE_OPTIONS_H_
