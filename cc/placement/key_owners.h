// The arithmetic of a placement, on host and device: which rank owns a key and, for tables without hashing,
// which row a key has.
#ifndef SOK_CC_PLACEMENT_KEY_OWNERS_H_
#define SOK_CC_PLACEMENT_KEY_OWNERS_H_

#include <cstdint>

#include "cc/base/host_device.h"

namespace sok {

enum class PlacementKind {
  kByKey,     // rank `key % ranks`
  kOneRank,   // one rank has all rows
  kAllRanks,  // every rank has a replica of every row
  kRanges,    // rank r has the keys [boundaries[r], boundaries[r + 1])
};

// The key as an unsigned 64-bit number, modulo `ranks`.
SOK_HOST_DEVICE int OwnerByKey(int64_t key, int ranks) {
  return static_cast<int>(static_cast<uint64_t>(key) % static_cast<uint64_t>(ranks));
}

// The rank r with boundaries[r] <= key < boundaries[r + 1], with keys as unsigned numbers. There are ranks +
// 1 boundaries, which begin with 0 and do not decrease. Keys beyond the last boundary belong to the last
// rank.
SOK_HOST_DEVICE int OwnerInRanges(int64_t key, const int64_t* boundaries, int ranks) {
  int low = 0;
  int high = ranks - 1;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (static_cast<uint64_t>(boundaries[middle + 1]) <= static_cast<uint64_t>(key)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// A placement among a number of ranks, small enough to be a kernel's argument.
struct KeyOwners {
  PlacementKind kind = PlacementKind::kByKey;
  int ranks = 1;
  int rank = 0;                         // kOneRank
  const int64_t* boundaries = nullptr;  // kRanges: in the memory of the processor that calls OwnerOf

  // The rank that owns `key`, in [0, ranks). With replicas rank 0, whose rows represent those of all ranks.
  SOK_HOST_DEVICE int OwnerOf(int64_t key) const {
    switch (kind) {
      case PlacementKind::kByKey:
        return OwnerByKey(key, ranks);
      case PlacementKind::kOneRank:
        return rank;
      case PlacementKind::kAllRanks:
        return 0;
      case PlacementKind::kRanges:
        return OwnerInRanges(key, boundaries, ranks);
    }
    return 0;
  }

  // Whether `key` has its row, or a replica of it, on rank `holder`.
  SOK_HOST_DEVICE bool Holds(int holder, int64_t key) const {
    return kind == PlacementKind::kAllRanks || OwnerOf(key) == holder;
  }
};

// The rows that a table without hashing has on one rank: row i has the key first + i * stride.
struct StaticRows {
  int64_t first = 0;
  int64_t stride = 1;
  int64_t count = 0;

  // The key of a row in [0, count).
  SOK_HOST_DEVICE int64_t KeyOf(int64_t row) const { return first + row * stride; }

  // The row of a key, or -1 if it has none on this rank.
  SOK_HOST_DEVICE int64_t RowOf(int64_t key) const {
    const uint64_t offset = static_cast<uint64_t>(key) - static_cast<uint64_t>(first);
    const uint64_t row = offset / static_cast<uint64_t>(stride);
    const bool here = row < static_cast<uint64_t>(count) && offset == row * static_cast<uint64_t>(stride);
    return here ? static_cast<int64_t>(row) : -1;
  }
};

}  // namespace sok

#endif  // SOK_CC_PLACEMENT_KEY_OWNERS_H_
