#ifndef SOK_CC_PLACEMENT_PLACEMENT_H_
#define SOK_CC_PLACEMENT_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/placement/key_owners.h"

namespace sok {

// Which rank holds which rows of a table. A value: copyable, comparable, and with a text form. Equal
// placements have equal texts.
//
// A table with hashing can have any placement: each key has one owner, or all ranks hold it. In a table
// without hashing the placement also determines the row number of a key; `capacity` is then the most rows
// that a rank has.
class Placement {
 public:
  // By key. Without hashing, there are as many keys as the capacities of all ranks allow.
  Placement() = default;
  // By key. Without hashing the keys are [0, keys), where keys > 0.
  static Placement ByKey(int64_t keys);
  static Placement OneRank(int rank);
  static Placement AllRanks();
  static Placement Ranges(std::vector<int64_t> boundaries);

  // Reads what Text() writes. InvalidArgument, which quotes `text`, for anything else.
  static StatusOr<Placement> Parse(std::string_view text);
  // "by_key", "by_key:11" (with a number of keys), "one_rank:2", "all_ranks" or "ranges:0,100,250".
  std::string Text() const;

  // InvalidArgument, which quotes the placement's text, unless the placement fits `ranks` ranks: the rank of
  // kOneRank must be in [0, ranks), and kRanges needs ranks + 1 boundaries that begin with 0 and do not
  // decrease.
  Status Check(int ranks) const;
  // As Check, for a table without hashing: with kRanges or a number of keys, `capacity` must also be the most
  // rows that a rank has.
  Status CheckStatic(int ranks, int64_t capacity) const;

  PlacementKind kind() const { return kind_; }
  bool is_by_key() const { return kind_ == PlacementKind::kByKey; }
  bool is_replicated() const { return kind_ == PlacementKind::kAllRanks; }
  // Whether the rows of `rank` are included in sums over ranks, in checkpoints and statistics. Of replicas
  // only those of rank 0 are.
  bool represents(int rank) const { return !is_replicated() || rank == 0; }

  // The members below need a placement that fits `ranks`.

  // Tells which rank owns a key. Points into this placement, which must outlive it.
  KeyOwners owners(int ranks) const { return {kind_, ranks, rank_, boundaries_.data()}; }
  // The rows of a table without hashing on `rank`.
  StaticRows RowsOn(int rank, int ranks, int64_t capacity) const;
  // A table without hashing has the keys [0, StaticKeys).
  int64_t StaticKeys(int ranks, int64_t capacity) const;

  bool operator==(const Placement& other) const {
    return kind_ == other.kind_ && keys_ == other.keys_ && rank_ == other.rank_ &&
           boundaries_ == other.boundaries_;
  }
  bool operator!=(const Placement& other) const { return !(*this == other); }

 private:
  PlacementKind kind_ = PlacementKind::kByKey;
  int64_t keys_ = 0;                 // of ByKey
  int rank_ = 0;                     // kOneRank
  std::vector<int64_t> boundaries_;  // kRanges
};

}  // namespace sok

#endif  // SOK_CC_PLACEMENT_PLACEMENT_H_
