#ifndef SOK_CC_PLACEMENT_PLACEMENT_H_
#define SOK_CC_PLACEMENT_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/placement/key_owners.h"

namespace sok {

// Where the rows of a table live among ranks. A value: copyable, comparable, with a text form that is the
// same wherever the placement is.
//
// A table with hashing takes every placement: each key has one owner, or all ranks hold it. A table without
// hashing numbers its rows by it; `capacity` is then the number of rows of each rank that has any, of ranges
// that of the longest.
class Placement {
 public:
  // By key.
  Placement() = default;
  static Placement OneRank(int rank);
  static Placement AllRanks();
  static Placement Ranges(std::vector<int64_t> boundaries);

  // Reads what Text() writes, and nothing else. InvalidArgument, which has `text`, for any other.
  static StatusOr<Placement> Parse(std::string_view text);
  // "by_key", "one_rank:2", "all_ranks" or "ranges:0,100,250".
  std::string Text() const;

  // InvalidArgument, which has the placement's text, where it does not fit so many ranks: a rank that is not
  // there, or other boundaries than ranks + 1 that begin with 0 and do not fall.
  Status Check(int ranks) const;
  // As Check, for a table without hashing: ranges have rows, and `capacity` is the length of the longest.
  Status CheckStatic(int ranks, int64_t capacity) const;

  PlacementKind kind() const { return kind_; }
  bool is_by_key() const { return kind_ == PlacementKind::kByKey; }
  bool is_replicated() const { return kind_ == PlacementKind::kAllRanks; }
  // Whether what `rank` holds stands for the table where ranks are added up, in checkpoints and statistics:
  // of replicas only rank 0's does.
  bool represents(int rank) const { return !is_replicated() || rank == 0; }

  // The members below need a placement that fits `ranks`.

  // Who owns a key. Points into this placement, which must outlive it.
  KeyOwners owners(int ranks) const { return {kind_, ranks, rank_, boundaries_.data()}; }
  // The rows of a table without hashing on `rank`.
  StaticRows RowsOn(int rank, int ranks, int64_t capacity) const;
  // A table without hashing has the keys [0, StaticKeys).
  int64_t StaticKeys(int ranks, int64_t capacity) const;

  bool operator==(const Placement& other) const {
    return kind_ == other.kind_ && rank_ == other.rank_ && boundaries_ == other.boundaries_;
  }
  bool operator!=(const Placement& other) const { return !(*this == other); }

 private:
  PlacementKind kind_ = PlacementKind::kByKey;
  int rank_ = 0;                     // kOneRank
  std::vector<int64_t> boundaries_;  // kRanges
};

}  // namespace sok

#endif  // SOK_CC_PLACEMENT_PLACEMENT_H_
