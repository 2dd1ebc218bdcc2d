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

// The definition of a saved table.
struct SavedTable {
  TableOptions options;              // those of rank 0; `ranks` is the number of shards
  int hashes = 0;                    // hash functions of a Bloom filter
  int64_t counters = 0;              // counters of a Bloom filter
  bool counters_in_blocks = false;   // only blocks of counters that are not zero are saved
  bool counts_global_steps = false;  // see Table::counts_global_steps
};

// The table-wide state of an optimizer.
struct SavedOptimizer {
  struct Slot {
    std::string name;
    int64_t width = 0;
    float fill = 0.0f;
  };
  // The steps of exact Adam since the full checkpoint. Rows may have missed some of them. The learning rates
  // are the array "alphas" of shard 0.
  struct History {
    float beta1 = 0.0f;
    float beta2 = 0.0f;
    float epsilon = 0.0f;
    int64_t first_step = 0;  // the optimizer's steps() before the first of these steps
  };

  std::string name;
  int64_t steps = 0;
  std::vector<std::pair<std::string, float>> hyper;  // of the first step, in any order
  std::vector<Slot> slots;
  std::optional<History> history;
};

// What one rank wrote.
struct SavedShard {
  int64_t rows = 0;        // in its arrays
  int64_t table_rows = 0;  // of the rank's table; in a delta it may exceed `rows`
  std::map<std::string, ArrayFile> arrays;
};

// Another checkpoint of a chain.
struct ChainLink {
  std::string path;    // the table's path in it, relative to that in the checkpoint with this link
  uint32_t crc32 = 0;  // of its whole manifest
};

// manifest.json; see docs/checkpoint-format.md.
struct Manifest {
  bool delta = false;
  SavedTable table;
  int64_t steps = 0;  // of the table's clock, as are `uses`: see TableClock
  int64_t uses = 0;
  int64_t rows = 0;  // of the table, over all shards
  std::optional<SavedOptimizer> optimizer;
  std::vector<ChainLink> chain;  // the checkpoints below a delta, the full one first; empty for a full one
  std::vector<SavedShard> shards;
};

constexpr char kManifestName[] = "manifest.json";
// A manifest takes about 18 bytes for each MiB of the checkpoint.
constexpr int64_t kMaxManifestBytes = int64_t{1} << 28;

// The dtype of a Bloom filter's counters.
std::string CounterDtype(int counter_bits);
// "shard-00003"
std::string ShardFolder(int shard);
// "shard-00003/keys.npy"
std::string ArrayPath(int shard, const std::string& array);

std::string EncodeManifest(const Manifest& manifest);
// Reads what EncodeManifest writes. DataLoss, which names `path` and the reason, unless `bytes` are a
// complete and consistent manifest of a known version. Reasons include a wrong checksum, members of the wrong
// type, sizes that overflow or are inconsistent, missing or unknown arrays, and paths outside the checkpoint.
StatusOr<Manifest> ParseManifest(const std::string& bytes, const std::string& path);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_MANIFEST_H_
