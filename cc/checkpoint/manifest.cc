#include "cc/checkpoint/manifest.h"

#include <cstdio>

#include "cc/checkpoint/manifest_json.h"
#include "cc/table/bloom_filter.h"

namespace sok {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "sparse-operation-kit checkpoint";
// The version for rows that are placed by key, the one for other placements (see "placement"), the one for
// tables with DeepRec's initial rows or its older admission, the one for Bloom filters in blocks, and the one
// for initial rows that are given.
constexpr int kVersionByKey = 1;
constexpr int kVersionPlaced = 2;
constexpr int kVersionDeepRec = 3;
constexpr int kVersionBlocks = 4;
constexpr int kVersionGivenRows = 5;
// The checksum of a manifest covers the text before the last occurrence of this member.
constexpr char kChecksumMember[] = "\"crc32\"";

// Compares the checksum at the end of a manifest with the text before it.
void CheckChecksum(JsonReader* reader, const std::string& bytes) {
  const size_t at = bytes.rfind(kChecksumMember);
  if (at == std::string::npos) return reader->Fail("has no checksum");
  const std::string end = StrCat(kChecksumMember, ": ", Crc32(std::string_view(bytes).substr(0, at)), "\n}");
  if (bytes.compare(at, std::string::npos, end) != 0) {
    reader->Fail("is damaged: its checksum does not match");
  }
}

void ReadShards(JsonReader* reader, const Json& json, Manifest* manifest) {
  const Json& shards = reader->Array(json, "shards");
  if (shards.empty() || shards.size() > 99999) reader->Fail("has ", shards.size(), " shards");
  for (const Json& entry : shards) {
    if (!reader->ok()) return;
    manifest->shards.push_back(ReadShard(reader, entry, static_cast<int>(manifest->shards.size())));
  }
  manifest->table.options.ranks = static_cast<int>(manifest->shards.size());
}

// Checks the names, types and shapes of a shard's arrays.
class ShardCheck {
 public:
  ShardCheck(JsonReader* reader, const Manifest& manifest, const SavedShard& shard)
      : reader_(reader), manifest_(manifest), shard_(shard), left_(shard.arrays.size()) {}

  void Run() {
    const TableOptions& table = manifest_.table.options;
    Need("keys", "<i8", {shard_.rows});
    Need("values", "<f4", {shard_.rows, table.dim});
    if (manifest_.optimizer.has_value()) CheckOptimizer(*manifest_.optimizer);
    for (const char* name : {"frequency", "last_step", "last_used"}) {
      if (Has(name)) Need(name, "<i8", {shard_.rows});
      if (Has(name) != (manifest_.shards.front().arrays.count(name) != 0)) {
        reader_->Fail("has the array \"", name, "\" in some of its shards");
      }
    }
    if (table.admission.kind == Admission::Kind::kCounter) {
      const int64_t waiting = Has("waiting_keys") ? shard_.arrays.at("waiting_keys").type.shape[0] : 0;
      for (const char* name : {"waiting_keys", "waiting_counts", "waiting_last_step"}) {
        Need(name, "<i8", {waiting});
      }
    }
    if (table.admission.kind == Admission::Kind::kBloom) {
      CheckCounters(table.admission.counter_bits);
    }
    const Initializer& initializer = table.initializer;
    if (initializer.kind == InitializerKind::kGiven && !manifest_.delta && IsFirst()) {
      Need("initial_rows", "<f4", {static_cast<int64_t>(initializer.rows), table.dim});
    }
    if (manifest_.delta) CheckDelta();
    if (left_ != 0 && reader_->ok()) reader_->Fail("has arrays that do not belong to such a checkpoint");
  }

 private:
  bool IsFirst() const { return &shard_ == &manifest_.shards.front(); }
  bool Has(const std::string& name) const { return shard_.arrays.count(name) != 0; }
  void Need(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape) {
    const auto array = shard_.arrays.find(name);
    if (array == shard_.arrays.end()) return reader_->Fail("lacks the array \"", name, "\" of a shard");
    --left_;
    const ArrayType wanted{dtype, shape};
    if (array->second.type != wanted) {
      reader_->Fail("has ", Describe(array->second.type), " in ", array->second.file, ", not ",
                    Describe(wanted));
    }
  }
  // An array of any length.
  void MayHave(const std::string& name, const std::string& dtype) {
    if (Has(name)) Need(name, dtype, {shard_.arrays.at(name).type.shape[0]});
  }
  void CheckCounters(int bits) {
    const int64_t counters = manifest_.table.counters;
    if (!manifest_.table.counters_in_blocks) return Need("bloom_counters", CounterDtype(bits), {counters});
    const int64_t count = Has("bloom_blocks") ? shard_.arrays.at("bloom_blocks").type.shape[0] : 0;
    Need("bloom_blocks", "<i8", {count});
    Need("bloom_counters", CounterDtype(bits), {count, BloomShape::CountersPerBlock(bits)});
  }
  void CheckOptimizer(const SavedOptimizer& optimizer) {
    for (const SavedOptimizer::Slot& slot : optimizer.slots) {
      Need("slot-" + slot.name, "<f4", {shard_.rows, slot.width});
    }
    if (!optimizer.history.has_value()) return;
    Need("adam_step", "<u4", {shard_.rows});
    const int64_t steps = optimizer.steps - optimizer.history->first_step;
    if (IsFirst()) Need("alphas", "<f4", {steps});
  }
  void CheckDelta() {
    Need("deleted", "<i8", {Has("deleted") ? shard_.arrays.at("deleted").type.shape[0] : 0});
    if (manifest_.table.options.admission.kind == Admission::Kind::kCounter)
      MayHave("waiting_deleted", "<i8");
  }

  JsonReader* const reader_;
  const Manifest& manifest_;
  const SavedShard& shard_;
  size_t left_;  // arrays not checked yet
};

// The number of rows in a shard of a table without hashing.
int64_t StaticRowsOf(const TableOptions& table, int shard) {
  if (!table.placement.represents(shard)) return 0;
  return table.placement.RowsOn(shard, table.ranks, table.capacity).count;
}

int VersionOf(const SavedTable& table) {
  const TableOptions& options = table.options;
  if (options.initializer.kind == InitializerKind::kGiven) return kVersionGivenRows;
  if (table.counters_in_blocks) return kVersionBlocks;
  if (options.initializer.rows > 0 || options.admission.before_lookup) return kVersionDeepRec;
  return options.placement.is_by_key() ? kVersionByKey : kVersionPlaced;
}

void CheckConsistency(JsonReader* reader, const Manifest& manifest) {
  int64_t rows = 0;
  const TableOptions& table = manifest.table.options;
  const Status placement = table.placement.Check(table.ranks);
  if (!placement.ok()) return reader->Fail("has a ", placement.message());
  for (const SavedShard& shard : manifest.shards) {
    const int64_t static_rows = StaticRowsOf(table, static_cast<int>(&shard - manifest.shards.data()));
    if (!table.use_hashtable && shard.table_rows != static_rows) {
      return reader->Fail("has ", shard.table_rows, " rows, not ", static_rows,
                          ", in a shard of a table without hashing");
    }
    if (__builtin_add_overflow(rows, shard.table_rows, &rows) || shard.rows > shard.table_rows ||
        (!manifest.delta && shard.rows != shard.table_rows)) {
      return reader->Fail("has ", shard.rows, " rows in a shard whose table has ", shard.table_rows);
    }
  }
  if (rows != manifest.rows) {
    return reader->Fail("has shards of ", rows, " rows for a table of ", manifest.rows);
  }
  if (manifest.delta == manifest.chain.empty()) {
    return reader->Fail("is a ", manifest.delta ? "delta" : "full checkpoint", " with a chain of ",
                        manifest.chain.size(), " checkpoints before it");
  }
  const bool has_history = manifest.optimizer.has_value() && manifest.optimizer->history.has_value();
  if (has_history &&
      (!manifest.delta || manifest.optimizer->history->first_step > manifest.optimizer->steps)) {
    return reader->Fail("has an invalid history of the optimizer");
  }
  for (const SavedShard& shard : manifest.shards) ShardCheck(reader, manifest, shard).Run();
  const Status options = CheckOptions(manifest.table.options);
  if (!options.ok()) reader->Fail("describes an invalid table: ", options.message());
}

}  // namespace

std::string CounterDtype(int counter_bits) {
  return StrCat(counter_bits == 8 ? "|u" : "<u", counter_bits / 8);
}

std::string ShardFolder(int shard) {
  char text[32];
  std::snprintf(text, sizeof(text), "shard-%05d", shard);
  return text;
}

std::string ArrayPath(int shard, const std::string& array) {
  return ShardFolder(shard) + "/" + array + ".npy";
}

std::string EncodeManifest(const Manifest& manifest) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = VersionOf(manifest.table);
  json["kind"] = manifest.delta ? "delta" : "full";
  json["table"] = TableJson(manifest.table);
  json["steps"] = manifest.steps;
  json["uses"] = manifest.uses;
  json["rows"] = manifest.rows;
  json["optimizer"] = OptimizerJson(manifest.optimizer);
  json["chain"] = ChainJson(manifest.chain);
  json["block_bytes"] = kBlockBytes;
  json["shards"] = nlohmann::ordered_json::array();
  for (const SavedShard& shard : manifest.shards) json["shards"].push_back(ShardJson(shard));
  json["crc32"] = 0;
  std::string text = JsonText(json);
  text.resize(text.rfind(kChecksumMember));
  return text + StrCat(kChecksumMember, ": ", Crc32(text), "\n}");
}

StatusOr<Manifest> ParseManifest(const std::string& bytes, const std::string& path) {
  JsonReader reader(path);
  CheckChecksum(&reader, bytes);
  if (!reader.ok()) return reader.status();
  const Json json = reader.Parse(bytes);
  if (!reader.ok()) return reader.status();
  if (reader.String(json, "format") != kFormat) reader.Fail("is not a manifest of a checkpoint");
  const int64_t version = reader.Int(json, "version", 0);
  if (version < kVersionByKey || version > kVersionGivenRows) {
    reader.Fail("has format version ", version, "; this library reads versions ", kVersionByKey, " to ",
                kVersionGivenRows);
  }
  Manifest manifest;
  const std::string kind = reader.String(json, "kind");
  if (kind != "full" && kind != "delta") reader.Fail("has an unknown \"kind\": \"", kind, "\"");
  manifest.delta = kind == "delta";
  manifest.table = ReadTable(&reader, reader.Object(json, "table"));
  if (reader.ok() && version != VersionOf(manifest.table)) {
    reader.Fail("is of version ", version, ", but a table with the placement \"",
                manifest.table.options.placement.Text(), "\", ", manifest.table.options.initializer.rows,
                " shared initial rows, before_lookup ", manifest.table.options.admission.before_lookup,
                " and in_blocks ", manifest.table.counters_in_blocks, " is of version ",
                VersionOf(manifest.table));
  }
  manifest.steps = reader.Int(json, "steps", 0);
  manifest.uses = reader.Int(json, "uses", 0);
  manifest.rows = reader.Int(json, "rows", 0);
  manifest.optimizer = ReadOptimizer(&reader, reader.Member(json, "optimizer"));
  manifest.chain = ReadChain(&reader, reader.Member(json, "chain"));
  reader.Int(json, "block_bytes", kBlockBytes, kBlockBytes);
  ReadShards(&reader, json, &manifest);
  if (reader.ok()) CheckConsistency(&reader, manifest);
  if (!reader.ok()) return reader.status();
  return manifest;
}

}  // namespace sok
