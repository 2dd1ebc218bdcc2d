#include "cc/checkpoint/manifest.h"

#include <algorithm>

#include "cc/checkpoint/manifest_json.h"
#include "cc/table/bloom_filter.h"

namespace sok {
namespace {

using Json = nlohmann::json;

// The beginning of a table's text, by which it is told from other strings of a checkpoint.
constexpr char kFormatOfTable[] = "sparse-operation-kit table";
constexpr int kVersionOfTable = 1;
constexpr int64_t kMaxShards = 99999;

// Checks the names, types and shapes of a shard's arrays.
class ShardCheck {
 public:
  ShardCheck(JsonReader* reader, const Manifest& manifest, const SavedShard& shard)
      : reader_(reader), manifest_(manifest), shard_(shard), left_(shard.arrays.size()) {}

  void Run() {
    const TableOptions& table = manifest_.table.options;
    Need("keys", "<i8", {shard_.rows});
    Need("values", DtypeOf(table.record.weights), {shard_.rows, table.dim});
    if (manifest_.optimizer.has_value()) CheckOptimizer(*manifest_.optimizer);
    for (const char* name : {"frequency", "last_step", "last_used"}) {
      if (Has(name)) Need(name, "<i8", {shard_.rows});
      if (Has(name) != (manifest_.shards.front().arrays.count(name) != 0)) {
        reader_->Fail("has the array \"", name, "\" in some of its shards");
      }
    }
    if (table.admission.kind == Admission::Kind::kCounter) {
      const int64_t waiting = Has("waiting_keys") ? shard_.arrays.at("waiting_keys").array.type.shape[0] : 0;
      for (const char* name : {"waiting_keys", "waiting_counts", "waiting_last_step"}) {
        Need(name, "<i8", {waiting});
      }
    }
    if (table.admission.kind == Admission::Kind::kBloom) {
      CheckCounters(table.admission.counter_bits);
    }
    const Initializer& initializer = table.initializer;
    if (initializer.kind == InitializerKind::kGiven && !manifest_.delta && IsFirst()) {
      Need("initial_rows", DtypeOf(table.record.weights),
           {static_cast<int64_t>(initializer.rows), table.dim});
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
    if (array->second.array.type != wanted) {
      reader_->Fail("has ", Describe(array->second.array.type), " in the array \"", name, "\", not ",
                    Describe(wanted));
    }
  }
  // An array of any length.
  void MayHave(const std::string& name, const std::string& dtype) {
    if (Has(name)) Need(name, dtype, {shard_.arrays.at(name).array.type.shape[0]});
  }
  void CheckCounters(int bits) {
    const int64_t counters = manifest_.table.counters;
    if (!manifest_.table.counters_in_blocks) return Need("bloom_counters", CounterDtype(bits), {counters});
    const int64_t count = Has("bloom_blocks") ? shard_.arrays.at("bloom_blocks").array.type.shape[0] : 0;
    Need("bloom_blocks", "<i8", {count});
    Need("bloom_counters", CounterDtype(bits), {count, BloomShape::CountersPerBlock(bits)});
  }
  void CheckOptimizer(const SavedOptimizer& optimizer) {
    for (const SavedOptimizer::Slot& slot : optimizer.slots) {
      Need("slot-" + slot.name, DtypeOf(slot.type), {shard_.rows, slot.width});
    }
    if (!optimizer.history.has_value()) return;
    Need("adam_step", "<u4", {shard_.rows});
    const int64_t steps = optimizer.steps - optimizer.history->first_step;
    if (IsFirst()) Need("alphas", "<f4", {steps});
  }
  void CheckDelta() {
    Need("deleted", "<i8", {Has("deleted") ? shard_.arrays.at("deleted").array.type.shape[0] : 0});
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

void CheckConsistency(JsonReader* reader, const Manifest& manifest) {
  int64_t rows = 0;
  const TableOptions& table = manifest.table.options;
  const Status placement = table.placement.Check(table.ranks);
  if (!placement.ok()) return reader->Fail("has a ", placement.message());
  for (const SavedShard& shard : manifest.shards) {
    if (!manifest.apart && shard.steps != manifest.steps) {
      return reader->Fail("has a shard of step ", shard.steps, " beside one of step ", manifest.steps);
    }
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

// For ranks that are apart: a save may come between the parts of a table's first step.
void JoinOptimizers(JsonReader* reader, Manifest* manifest) {
  for (const SavedShard& shard : manifest->shards) {
    if (!shard.optimizer.has_value()) continue;
    if (!manifest->optimizer.has_value()) manifest->optimizer = shard.optimizer;
    if (!IsSameOptimizer(*shard.optimizer, *manifest->optimizer)) {
      return reader->Fail("has a shard with the optimizer ", shard.optimizer->name, " beside one with ",
                          manifest->optimizer->name);
    }
  }
  if (manifest->optimizer.has_value() && !manifest->FillSlots(*manifest->optimizer)) {
    reader->Fail("has slots in a shard without an optimizer");
  }
}

}  // namespace

std::string CounterDtype(int counter_bits) {
  return StrCat(counter_bits == 8 ? "|u" : "<u", counter_bits / 8);
}

std::string ShardEntry(const std::string& table, int shard) { return StrCat(table, "#", shard); }
std::string ArrayEntry(const std::string& table, int shard, const std::string& array) {
  return StrCat(table, "#", shard, "/", array);
}

int64_t Manifest::rows() const {
  int64_t rows = 0;
  for (const SavedShard& shard : shards) rows += shard.table_rows;
  return rows;
}

bool Manifest::FillSlots(const SavedOptimizer& of_others) {
  if (!optimizer.has_value()) {
    optimizer = of_others;
    optimizer->history.reset();
  }
  bool filled = true;
  for (SavedShard& shard : shards) {
    if (shard.optimizer.has_value()) continue;
    for (const SavedOptimizer::Slot& slot : optimizer->slots) {
      PlacedArray array;
      array.array.type = ArrayType{"<f4", {shard.rows, slot.width}};
      array.fill = slot.fill;
      filled &= shard.arrays.emplace("slot-" + slot.name, std::move(array)).second;
    }
  }
  return filled;
}

bool IsSameOptimizer(const SavedOptimizer& a, const SavedOptimizer& b) {
  return a.name == b.name && std::equal(a.slots.begin(), a.slots.end(), b.slots.begin(), b.slots.end(),
                                        [](const auto& one, const auto& other) {
                                          return one.name == other.name && one.width == other.width &&
                                                 one.type == other.type;
                                        });
}

std::string EncodeTable(const Manifest& manifest) {
  nlohmann::ordered_json json = JsonObject(10);
  json["format"] = kFormatOfTable;
  json["version"] = kVersionOfTable;
  json["kind"] = manifest.delta ? "delta" : "full";
  json["table"] = TableJson(manifest.table);
  json["steps"] = manifest.steps;
  json["uses"] = manifest.uses;
  if (manifest.apart) json["apart"] = true;
  json["optimizer"] = OptimizerJson(manifest.optimizer);
  json["chain"] = ChainJson(manifest.chain);
  json["block_bytes"] = kBlockBytes;
  json["shards"] = manifest.table.options.ranks;
  return JsonText(json);
}

std::string EncodeShard(const SavedShard& shard) { return JsonText(ShardJson(shard)); }

bool IsTable(std::string_view text) {
  const std::string start = StrCat("{\"format\":\"", kFormatOfTable, "\"");
  return text.substr(0, start.size()) == start;
}

Status ManifestReader::ReadTable(const std::string& text, const std::string& name, int* shards) {
  JsonReader reader(path_);
  const Json json = reader.Parse(text);
  if (!reader.ok()) return reader.status();
  if (reader.String(json, "format") != kFormatOfTable) reader.Fail("is not a table of a checkpoint");
  const int64_t version = reader.Int(json, "version", 0);
  if (version != kVersionOfTable) {
    reader.Fail("has format version ", version, "; this library reads version ", kVersionOfTable);
  }
  const std::string kind = reader.String(json, "kind");
  if (kind != "full" && kind != "delta") reader.Fail("has an unknown \"kind\": \"", kind, "\"");
  manifest_.delta = kind == "delta";
  manifest_.table = ::sok::ReadTable(&reader, reader.Object(json, "table"));
  if (manifest_.table.options.name != name) {
    reader.Fail("is of the table '", manifest_.table.options.name, "', not of '", name, "'");
  }
  manifest_.steps = reader.Int(json, "steps", 0, kMaxCount);
  manifest_.uses = reader.Int(json, "uses", 0, kMaxCount);
  manifest_.apart = reader.ok() && json.contains("apart");
  manifest_.optimizer = ReadOptimizer(&reader, reader.Member(json, "optimizer"));
  manifest_.chain = ReadChain(&reader, reader.Member(json, "chain"));
  reader.Int(json, "block_bytes", kBlockBytes, kBlockBytes);
  *shards = static_cast<int>(reader.Int(json, "shards", 1, kMaxShards));
  return reader.status();
}

Status ManifestReader::AddShard(const std::string& text) {
  JsonReader reader(path_);
  const Json json = reader.Parse(text);
  if (!reader.ok()) return reader.status();
  manifest_.shards.push_back(ReadShard(&reader, json));
  if (manifest_.apart) {
    const SavedShard& shard = manifest_.shards.back();
    manifest_.steps = std::max(manifest_.steps, shard.steps);
    manifest_.uses = std::max(manifest_.uses, shard.uses.value_or(0));
  }
  return reader.status();
}

StatusOr<Manifest> ManifestReader::Finish() {
  JsonReader reader(path_);
  manifest_.table.options.ranks = static_cast<int>(manifest_.shards.size());
  if (manifest_.apart) JoinOptimizers(&reader, &manifest_);
  if (manifest_.optimizer.has_value()) {
    for (const SavedOptimizer::Slot& slot : manifest_.optimizer->slots) {
      if (slot.type != FloatType::kFloat32) manifest_.table.options.record.slots = slot.type;
    }
  }
  CheckConsistency(&reader, manifest_);
  if (!reader.ok()) return reader.status();
  return std::move(manifest_);
}

}  // namespace sok
