#ifndef SOK_CC_CHECKPOINT_SHARD_KEYS_H_
#define SOK_CC_CHECKPOINT_SHARD_KEYS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/saved_checkpoint.h"
#include "cc/cpu/dedup/dedup.h"
#include "cc/placement/placement.h"
#include "cc/table/table_options.h"

namespace sok {

// One shard of a table in one checkpoint.
struct ShardSource {
  SavedCheckpoint& checkpoint;
  const Manifest& manifest;
  int shard = 0;

  const SavedShard& saved() const { return manifest.shards[static_cast<size_t>(shard)]; }
  // Null if the shard has no such array.
  const PlacedArray* Find(const std::string& array) const {
    const auto found = saved().arrays.find(array);
    return found == saved().arrays.end() ? nullptr : &found->second;
  }
  // Opens an array, which the shard must have.
  StatusOr<std::unique_ptr<ArrayReader>> Open(const std::string& array) const;
};

// Selects the keys of a shard that this rank reads, and checks keys.
class KeyFilter {
 public:
  // For the rank options.rank of options.ranks. Both arguments must outlive the filter.
  KeyFilter(const TableOptions& options, const ShardSource& source);

  bool Wants(int64_t key) const { return owners_.Holds(options_.rank, key); }
  // DataLoss for a key that does not belong to the shard; ResourceExhausted for a key that has no row in a
  // table without hashing; InvalidArgument for one that another system wrote and the table cannot have.
  Status Check(int64_t key, const std::string& path) const;

 private:
  // Of another system's table.
  Status CheckForeign(int64_t key, const std::string& path) const;
  // In a table without hashing.
  Status CheckStatic(int64_t key, const std::string& path) const;

  const TableOptions& options_;
  const ShardSource& source_;
  const KeyOwners owners_;
  const KeyOwners saved_owners_;
  const int64_t least_;  // of the keys of the table's dtype
  const int64_t most_;
};

// Checks the keys of pieces, which must be distinct in each piece.
class KeyChecker {
 public:
  Status Check(const KeyFilter& filter, const std::vector<int64_t>& keys, const std::string& path);

 private:
  Deduplicator deduplicator_;
  std::vector<int64_t> distinct_;
  std::vector<int32_t> firsts_;
};

// The keys of a piece of a shard.
struct PieceOfKeys {
  std::vector<int64_t> all;
  std::vector<bool> wanted;  // by index in `all`
  std::vector<int64_t> own;  // the wanted ones of `all`

  // Reads the next `count` keys, and checks them unless `checker` is null.
  Status Read(ArrayReader* reader, const KeyFilter& filter, int64_t count, KeyChecker* checker);
};

// Calls visit(keys) on the selected keys of an int64 array, which the shard must have, piece by piece, after
// checking all keys of the piece. DataLoss for a key that occurs twice in a piece.
Status ForEachKeyPiece(const ShardSource& source, const std::string& array, const KeyFilter& filter,
                       FunctionRef<Status(Span<const int64_t> keys)> visit);

// DataLoss for a key that two of the shards have, or one of them has twice, among those that this rank reads:
// keys with rows and keys that wait. Sorts some 32 MiB of keys at a time.
Status CheckDistinct(Span<const ShardSource> sources, const TableOptions& options);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_SHARD_KEYS_H_
