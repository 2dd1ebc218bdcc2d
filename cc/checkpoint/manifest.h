#ifndef SOK_CC_CHECKPOINT_MANIFEST_H_
#define SOK_CC_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/array_file.h"
#include "cc/table/table_options.h"

namespace sok {

// The definition of a saved table.
struct SavedTable {
  // Those of rank 0; `ranks` is the number of shards. Of the format of records only the types are saved, that
  // of slots with the optimizer.
  TableOptions options;
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
    FloatType type = FloatType::kFloat32;  // in the file
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
  int64_t rows = 0;             // in its arrays
  int64_t table_rows = 0;       // of the rank's table; in a delta it may exceed `rows`
  int64_t steps = 0;            // of the rank's table, the same on all ranks unless they are apart
  std::optional<int64_t> uses;  // of the rank's table, if ranks are apart
  // The same; none if the rank's table had taken no step.
  std::optional<SavedOptimizer> optimizer;
  std::map<std::string, PlacedArray> arrays;
};

// Another checkpoint of a chain.
struct ChainLink {
  std::string prefix;  // relative to the folder of the checkpoint with this link
  std::string id;      // of the save
};

// A table of a checkpoint; see docs/checkpoint-format.md.
struct Manifest {
  // The other system that wrote the table; empty: this library. Of such a table only the shards and, of the
  // options, name, dim and the number of shards are known. Any shard may have any key.
  std::string system = {};
  bool is_foreign() const { return !system.empty(); }
  std::vector<std::string> left_out = {};  // tensors of it that are not restored
  std::vector<std::string> entries = {};   // the index's entries of it, in no order
  std::string slots_of = {};               // the optimizer whose slots it has, once they are taken

  bool delta = false;
  SavedTable table;
  // Of the table's clock: see TableClock. If ranks are apart, those of the rank that is ahead, once all
  // shards are read.
  int64_t steps = 0;
  int64_t uses = 0;
  bool apart = false;  // see SaveRequest
  // If ranks are apart, that of the first rank that has one, once all shards are read.
  std::optional<SavedOptimizer> optimizer;
  std::vector<ChainLink> chain;  // the checkpoints below a delta, the full one first; empty for a full one
  std::vector<SavedShard> shards;

  // Of the table, over all shards.
  int64_t rows() const;
  // Gives the shards that had taken no step when others had, or when a later checkpoint of a chain was saved,
  // the slots of rows without a step. False if one of them has such arrays already. For ranks that are apart.
  bool FillSlots(const SavedOptimizer& of_others);
};

// Whether both have the same name, and slots of the same widths and types.
bool IsSameOptimizer(const SavedOptimizer& a, const SavedOptimizer& b);

// Steps and uses have to stay below their type's maximum while training goes on.
constexpr int64_t kMaxCount = int64_t{1} << 62;
// An array with some checksums takes as much text.
constexpr int64_t kMaxEntryBytes = int64_t{1} << 28;

// The dtype of a Bloom filter's counters.
std::string CounterDtype(int counter_bits);

// The entries of the table `name` in a checkpoint: its own, that of a shard, and that of a shard's array.
std::string ShardEntry(const std::string& table, int shard);                            // "items#3"
std::string ArrayEntry(const std::string& table, int shard, const std::string& array);  // "items#3/keys"

// The texts of a table's own entry, and of a shard's.
std::string EncodeTable(const Manifest& manifest);
std::string EncodeShard(const SavedShard& shard);
// Whether a text of an entry is one of EncodeTable.
bool IsTable(std::string_view text);

// Reads what EncodeTable and EncodeShard write; the result has no places of arrays. DataLoss, which names
// `path` and the reason, unless the texts are a complete and consistent table of this version of the format.
// Reasons include members of the wrong type, sizes that overflow or are inconsistent, and missing or unknown
// arrays.
class ManifestReader {
 public:
  explicit ManifestReader(std::string path) : path_(std::move(path)) {}

  // First the table's own text. *shards is the number of its shards, whose texts are to be added in order.
  Status ReadTable(const std::string& text, const std::string& name, int* shards);
  Status AddShard(const std::string& text);
  StatusOr<Manifest> Finish();

 private:
  const std::string path_;
  Manifest manifest_;
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_MANIFEST_H_
