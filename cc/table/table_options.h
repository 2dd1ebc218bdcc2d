#ifndef SOK_CC_TABLE_TABLE_OPTIONS_H_
#define SOK_CC_TABLE_TABLE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/initializers/initializer.h"
#include "cc/placement/placement.h"
#include "cc/table/record_layout.h"
#include "cc/table/tier_options.h"

namespace sok {

// What a bounded table does when a training lookup has more new keys than room.
enum class OnFull {
  kError,     // the lookup fails
  kEvictLru,  // evicts the rows whose last training lookup is longest ago
  kEvictLfu,  // evicts the rows that were looked up least often
};

// "error", "evict_lru" or "evict_lfu".
const char* NameOf(OnFull on_full);

// Which keys get rows: those that have occurred at least `filter_freq` times in training lookups, including
// the current one. The others read as `default_value` in every column and are not trained. With a
// `filter_freq` of 0, as in DeepRec, keys are counted, but each gets its row in its first training lookup,
// and until then reads as its initial row.
//
// With before_lookup, as in DeepRec's releases until 2023, a lookup reads what its keys were before it: those
// that get their rows in it still read as default_value, and are trained.
struct Admission {
  enum class Kind {
    kNone,     // every key, at once
    kCounter,  // counts exactly
    kBloom,    // counts in a Bloom filter of fixed size, which errs upwards; see BloomCounters
  };
  Kind kind = Kind::kNone;
  int64_t filter_freq = 0;
  float default_value = 0.0f;
  bool before_lookup = false;
  // kBloom; for the keys of one rank.
  int64_t max_element_size = 0;
  double false_positive_probability = 0.01;
  int counter_bits = 64;

  // Whether ids without a row read as default_value.
  bool filters() const { return kind != Kind::kNone && filter_freq > 0; }
};

// Which rows are evicted when a checkpoint is written. With kGlobalStep, also the ids that wait for
// admission and whose last occurrence is as old.
struct Eviction {
  enum class Kind {
    kNone,
    kGlobalStep,  // rows without an update for more than `steps_to_live` of the table's steps()
    kL2Weight,    // rows with 0.5 * sum of w^2 < l2_weight_threshold
  };
  Kind kind = Kind::kNone;
  int64_t steps_to_live = 0;
  float l2_weight_threshold = 0.0f;
};

// Where a device's engine keeps rows and slots. The results are the same bits either way; checkpoints do not
// record it.
enum class RowMemory {
  kDevice,  // in device memory
  kHost,    // in pinned host memory, which the device reads over its bus: for tables that do not fit
};

// "device" or "host".
const char* NameOf(RowMemory memory);

// The rank of a process that asks the ranks which hold a table, and is none of them.
constexpr int kNoRank = -1;

// The options of a table, which never change.
struct TableOptions {
  // Rows have at most 1 GiB, so the number of bytes of 2^31 rows fits 64 bits.
  static constexpr int64_t kMaxDim = int64_t{1} << 28;

  std::string name;           // the variable's unique name; every error names it
  int64_t dim = 0;            // floats in a row, in [1, kMaxDim]
  int64_t capacity = 0;       // the maximum number of rows on a rank; 0: no limit
  bool use_hashtable = true;  // false: the key determines the row (StaticRows), and a capacity is required
  // This rank among `ranks`, which hold the rows. kNoRank: the table only describes theirs. It takes part in
  // Engine::Route to Engine::RoutedWeightGradients, has no rows and takes no memory for any. Its initial rows
  // mean nothing.
  int rank = 0;
  int ranks = 1;
  Placement placement = {};         // which rank holds which key
  Initializer initializer = {};     // with its seed, also for kGiven: InitializerOf adds the rows
  std::vector<float> initial_rows;  // [initializer.rows, dim], of InitializerKind::kGiven; else empty
  std::string key_dtype = "int64";  // of the ids that callers look up; the table itself stores int64
  // The next three need use_hashtable.
  OnFull on_full = OnFull::kError;  // evicting needs a capacity
  Admission admission = {};
  Eviction eviction = {};

  // The types of rows and slots, and how steps round. RecordFormatOf adds the seed.
  RecordFormat record = {};

  RowMemory memory = RowMemory::kDevice;  // no difference on the CPU, where both are host memory
  TierOptions tiers = {};
};

// InvalidArgument, which names the variable and the value, unless a table can be made from `options`.
Status CheckOptions(const TableOptions& options);

// The same for options.initial_rows, which options read from a checkpoint's manifest lack.
Status CheckGivenRows(const TableOptions& options);

// The initializer of a table on the CPU. It refers to options.initial_rows.
inline Initializer InitializerOf(const TableOptions& options) {
  Initializer initializer = options.initializer;
  if (initializer.kind == InitializerKind::kGiven) initializer.given = options.initial_rows.data();
  return initializer;
}

// The format of a table's records.
inline RecordFormat RecordFormatOf(const TableOptions& options) {
  RecordFormat format = options.record;
  format.seed = Mix64(options.initializer.seed ^ Fingerprint64(options.name));
  return format;
}

// Describes `options` in words, for errors, without the rank: ranks with the same table get the same text.
std::string Describe(const TableOptions& options);

// A number that all processes of a table have: of the initial rows in the upper half, of everything else that
// Describe says in the lower half. With kNoRank the upper half is 0.
uint64_t DefinitionFingerprint(const TableOptions& options);

// Whether two processes may use a table together: the fingerprints are equal, or equal in the lower half and
// one has no initial rows.
bool DefinitionsAgree(uint64_t one, uint64_t other);

// Whether both are tables of the same rank among as many, equal in everything but their initial rows.
bool HoldTheSameKeys(const TableOptions& one, const TableOptions& other);

}  // namespace sok

#endif  // SOK_CC_TABLE_TABLE_OPTIONS_H_
