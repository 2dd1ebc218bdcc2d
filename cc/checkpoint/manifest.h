#ifndef SOK_CC_CHECKPOINT_MANIFEST_H_
#define SOK_CC_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/array_file.h"
#include "cc/table/table_options.h"

namespace sok {

// What a table was made from.
struct SavedTable {
  TableOptions options;  // as rank 0 has them; `ranks` is the number of shards
  // Of a Bloom filter.
  int hashes = 0;
  int64_t counters = 0;
  bool counts_global_steps = false;  // as Table's
};

// The table-wide state of an optimizer.
struct SavedOptimizer {
  struct Slot {
    std::string name;
    int64_t width = 0;
    float fill = 0.0f;
  };
  // Of an exact Adam whose rows lag: its steps since the full checkpoint. The rates are the array "alphas" of
  // shard 0.
  struct History {
    float beta1 = 0.0f;
    float beta2 = 0.0f;
    float epsilon = 0.0f;
    int64_t first_step = 0;  // the optimizer's steps() before the first of them
  };

  std::string name;
  int64_t steps = 0;
  std::vector<std::pair<std::string, float>> hyper;  // of the first step, in the optimizer's order
  std::vector<Slot> slots;
  std::optional<History> history;
};

// What one rank wrote.
struct SavedShard {
  int64_t rows = 0;        // in its arrays
  int64_t table_rows = 0;  // of the rank's table; more than `rows` in a delta
  std::map<std::string, ArrayFile> arrays;
};

// Another checkpoint of a chain.
struct ChainLink {
  std::string path;    // of its folder, relative to that of the manifest
  uint32_t crc32 = 0;  // of its whole manifest
};

// manifest.json; see docs/checkpoint-format.md.
struct Manifest {
  bool delta = false;
  SavedTable table;
  int64_t steps = 0;
  int64_t uses = 0;
  int64_t rows = 0;  // over all shards
  std::optional<SavedOptimizer> optimizer;
  std::vector<ChainLink> chain;  // what is to be read before, the full one first; empty for a full one
  std::vector<SavedShard> shards;
};

constexpr char kManifestName[] = "manifest.json";
// A manifest has some 12 bytes for each MiB of the checkpoint.
constexpr int64_t kMaxManifestBytes = int64_t{1} << 28;

// "shard-00003"
std::string ShardFolder(int shard);
// "shard-00003/keys.npy"
std::string ArrayPath(int shard, const std::string& array);

std::string EncodeManifest(const Manifest& manifest);
// DataLoss, which names `path` and the reason, for whatever is not a complete and consistent manifest of
// a known version: a checksum that does not match, other members' types, sizes that overflow or do not belong
// together, arrays that are missing or unknown, paths that lead elsewhere.
StatusOr<Manifest> ParseManifest(const std::string& bytes, const std::string& path);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_MANIFEST_H_
