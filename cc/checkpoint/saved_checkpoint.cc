#include "cc/checkpoint/saved_checkpoint.h"

#include <algorithm>
#include <utility>

#include "cc/base/crc32c.h"
#include "cc/base/printable.h"
#include "cc/checkpoint/foreign_tables.h"
#include "cc/checkpoint/json_reader.h"

namespace sok {
namespace {

constexpr char kFormatOfFacts[] = "sparse-operation-kit checkpoint";
constexpr int kVersionOfFacts = 1;
constexpr int kMostParts = 99999;
// No string that tells of a table is shorter. Others are not read to find tables.
constexpr int64_t kShortestTable = 64;

Status WrongChecksum(const std::string& path, const std::string& tensor) {
  return DataLoss("'", path, "' is damaged: the checksum of its tensor '", tensor, "' does not match");
}

}  // namespace

std::string EncodeFacts(const CheckpointFacts& facts) {
  nlohmann::ordered_json json;
  json["format"] = kFormatOfFacts;
  json["version"] = kVersionOfFacts;
  json["id"] = facts.id;
  json["parts"] = facts.parts;
  json["chains"] = facts.chains;
  return JsonText(json);
}

bool IsOfTables(const std::string& entry, const std::vector<std::string>& tables) {
  if (entry == kCheckpointEntry || entry == kCountedByEntry) return true;
  const auto is_table = [&tables](const std::string& name) {
    return std::binary_search(tables.begin(), tables.end(), name);
  };
  // Tables' names may have this character too.
  const size_t end = entry.rfind('#');
  return is_table(entry) || (end != std::string::npos && is_table(entry.substr(0, end)));
}

std::string RetiredIndexPath(const std::string& prefix) { return prefix + ".sok-index"; }

StatusOr<std::shared_ptr<SavedCheckpoint>> SavedCheckpoint::Open(Files& files, const std::string& prefix,
                                                                 bool retired) {
  SOK_RETURN_IF_ERROR(CheckPath(prefix));
  if (IsSok2Description(prefix)) {
    SOK_ASSIGN_OR_RETURN(auto folder, ReadSok2Folder(files, prefix));
    return std::shared_ptr<SavedCheckpoint>(
        new SavedCheckpoint(files, prefix, prefix, std::move(folder.index), std::move(folder.files)));
  }
  const std::string path = retired ? RetiredIndexPath(prefix) : IndexPath(prefix);
  std::string bytes;
  SOK_RETURN_IF_ERROR(ReadWholeFile(files, path, kMaxIndexBytes, &bytes));
  SOK_ASSIGN_OR_RETURN(auto index, ParseTensorIndex(bytes, path));
  return std::shared_ptr<SavedCheckpoint>(new SavedCheckpoint(files, prefix, path, std::move(index), {}));
}

StatusOr<TensorPlace> SavedCheckpoint::Find(const std::string& name) const {
  const auto found = index_.entries.find(name);
  if (found == index_.entries.end()) return NotFound("'", path_, "' has no '", name, "'");
  auto place = ParseTensorPlace(found->second, path_, name);
  SOK_RETURN_IF_ERROR(place.status());
  if (place.value().shard >= index_.shards) {
    return DataLoss("'", path_, "' is damaged: '", name, "' is in the data file ", place.value().shard,
                    " of ", index_.shards);
  }
  return place;
}

StatusOr<TensorPlace> SavedCheckpoint::FindNeeded(const std::string& name) const {
  auto place = Find(name);
  if (place.status().code() == StatusCode::kNotFound) return DataLoss(place.status().message());
  return place;
}

StatusOr<std::shared_ptr<FileReader>> SavedCheckpoint::Data(int shard) {
  const MutexLock lock(mutex_);
  std::shared_ptr<FileReader>& file = data_[shard];
  if (file == nullptr) {
    SOK_ASSIGN_OR_RETURN(file, files_.Open(DataFile(shard)));
  }
  return file;
}

Status SavedCheckpoint::RefuseLinks(const std::set<int>& shards) const {
  SOK_RETURN_IF_ERROR(files_.RefuseLink(path_));
  for (const int shard : shards) SOK_RETURN_IF_ERROR(files_.RefuseLink(DataFile(shard)));
  return OkStatus();
}

StatusOr<std::string> SavedCheckpoint::ReadString(const std::string& name, int64_t limit) {
  SOK_ASSIGN_OR_RETURN(const auto place, Find(name));
  if (place.dtype != kStringDtype || !place.shape.empty() || place.bytes > limit) {
    return DataLoss("'", path_, "' has a '", name, "' that is not a string of at most ", limit, " bytes");
  }
  SOK_ASSIGN_OR_RETURN(const auto found, ReadBytes(name, place));
  std::string text;
  if (ParseStringTensor(found, place.crc32c, &text)) return text;
  return WrongChecksum(DataFile(place.shard), name);
}

StatusOr<std::string> SavedCheckpoint::ReadNumbers(const std::string& name, const ArrayType& type) {
  SOK_ASSIGN_OR_RETURN(const auto place, Find(name));
  const ArrayType found{place.dtype, place.shape};
  int64_t bytes = ItemBytes(type.dtype);
  for (const int64_t size : type.shape) bytes *= size;
  if (found != type || place.bytes != bytes) {
    return DataLoss("'", path_, "' has ", place.bytes, " bytes of ", Describe(found), " as '", name,
                    "', not ", Describe(type));
  }
  auto numbers = ReadBytes(name, place);
  SOK_RETURN_IF_ERROR(numbers.status());
  if (Crc32c(numbers.value()) == place.crc32c) return numbers;
  return WrongChecksum(DataFile(place.shard), name);
}

StatusOr<std::string> SavedCheckpoint::ReadBytes(const std::string& name, const TensorPlace& place) {
  SOK_ASSIGN_OR_RETURN(const auto file, Data(place.shard));
  if (place.offset > file->size() || place.bytes > file->size() - place.offset) {
    return DataLoss("'", DataFile(place.shard), "' has ", file->size(),
                    " bytes, and ends before its tensor '", name, "' does");
  }
  std::string bytes(static_cast<size_t>(place.bytes), '\0');
  SOK_RETURN_IF_ERROR(file->ReadAt(place.offset, bytes.data(), place.bytes));
  return bytes;
}

StatusOr<CheckpointFacts> SavedCheckpoint::ReadFacts() {
  SOK_ASSIGN_OR_RETURN(const auto text, ReadString(kCheckpointEntry));
  JsonReader reader(path_);
  const nlohmann::json json = reader.Parse(text);
  if (!reader.ok()) return reader.status();
  if (reader.String(json, "format") != kFormatOfFacts) reader.Fail("has other facts than those of tables");
  const int64_t version = reader.Int(json, "version", 0);
  if (version != kVersionOfFacts) {
    reader.Fail("has format version ", version, "; this library reads version ", kVersionOfFacts);
  }
  CheckpointFacts facts;
  facts.id = reader.String(json, "id");
  facts.parts = static_cast<int>(reader.Int(json, "parts", 1, kMostParts));
  for (const nlohmann::json& chain : reader.Array(json, "chains")) {
    if (!chain.is_string()) reader.Fail("has \"chains\" that are not strings");
    if (!reader.ok()) return reader.status();
    facts.chains.push_back(chain.get<std::string>());
    const std::string& prefix = facts.chains.back();
    if (prefix.empty() || prefix[0] == '/' || !CheckPath(prefix).ok()) {
      reader.Fail("has \"chains\" with the prefix \"", prefix, "\", which is not relative, or not valid");
    }
  }
  if (!reader.ok()) return reader.status();
  return facts;
}

StatusOr<std::vector<std::string>> SavedCheckpoint::Tables() {
  std::vector<std::string> tables;
  if (!Has(kCheckpointEntry)) return tables;
  for (const auto& [name, entry] : index_.entries) {
    SOK_ASSIGN_OR_RETURN(const auto place, ParseTensorPlace(entry, path_, name));
    const bool may_be = place.dtype == kStringDtype && place.shape.empty() && place.bytes >= kShortestTable &&
                        Has(ShardEntry(name, 0));
    if (!may_be) continue;
    SOK_ASSIGN_OR_RETURN(const auto text, ReadString(name));
    if (IsTable(text)) tables.push_back(name);
  }
  return tables;
}

StatusOr<std::set<int>> SavedCheckpoint::ShardsOfTables() {
  SOK_ASSIGN_OR_RETURN(const auto tables, Tables());
  std::set<int> shards;
  for (const auto& [name, entry] : index_.entries) {
    if (!IsOfTables(name, tables)) continue;
    SOK_ASSIGN_OR_RETURN(const auto place, Find(name));
    shards.insert(place.shard);
  }
  return shards;
}

StatusOr<Manifest> SavedCheckpoint::ReadTable(const std::string& name) {
  auto foreign = ReadForeignTable(*this, name);
  if (foreign.status().code() != StatusCode::kNotFound) return foreign;
  SOK_ASSIGN_OR_RETURN(const auto text, ReadString(name));
  if (!IsTable(text)) {
    return InvalidArgument("'", path_, "' has a string '", name, "', which is not a table");
  }
  ManifestReader reader(StrCat(path_, ":", name));
  int shards = 0;
  SOK_RETURN_IF_ERROR(reader.ReadTable(text, name, &shards));
  for (int shard = 0; shard < shards; ++shard) {
    SOK_ASSIGN_OR_RETURN(const auto of_shard, ReadString(ShardEntry(name, shard)));
    SOK_RETURN_IF_ERROR(reader.AddShard(of_shard));
  }
  auto manifest = reader.Finish();
  SOK_RETURN_IF_ERROR(manifest.status());
  SOK_RETURN_IF_ERROR(PlaceArrays(name, &manifest.value()));
  return manifest;
}

Status SavedCheckpoint::PlaceArrays(const std::string& table, Manifest* manifest) const {
  int shard = 0;
  for (SavedShard& saved : manifest->shards) {
    for (auto& [name, placed] : saved.arrays) {
      placed.name = ArrayEntry(table, shard, name);
      if (placed.fill.has_value()) continue;
      SOK_ASSIGN_OR_RETURN(const TensorPlace place, FindNeeded(placed.name));
      const ArrayType type{place.dtype, place.shape};
      if (type != placed.array.type || place.bytes != placed.array.bytes()) {
        return DataLoss("'", path_, "' has ", place.bytes, " bytes of ", Describe(type), " as '", placed.name,
                        "', but its table says ", Describe(placed.array.type));
      }
      placed.shard = place.shard;
      placed.offset = place.offset;
      if (type.dtype == DtypeOf(FloatType::kFloat16) || type.dtype == DtypeOf(FloatType::kBfloat16)) {
        placed.array.type.dtype = DtypeOf(FloatType::kFloat32);
        placed.array.crc32c.clear();
        placed.stored_as = type.dtype;
        placed.whole_crc32c = place.crc32c;
      }
    }
    ++shard;
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<SavedCheckpoint>> OpenedCheckpoints::Get(const std::string& prefix, bool retired) {
  std::shared_ptr<SavedCheckpoint>& known = opened_[{prefix, retired}];
  if (known == nullptr) {
    SOK_ASSIGN_OR_RETURN(known, SavedCheckpoint::Open(files_, prefix, retired));
  }
  return known;
}

StatusOr<std::shared_ptr<SavedCheckpoint>> OpenedCheckpoints::GetBase(const std::string& prefix,
                                                                      const std::string& id) {
  Status error;
  for (const bool retired : {false, true}) {
    auto checkpoint = Get(prefix, retired);
    Status status = checkpoint.status();
    if (status.ok()) {
      const auto facts = checkpoint.value()->ReadFacts();
      if (facts.ok() && facts.value().id == id) return checkpoint;
      status = facts.ok() ? DataLoss("'", checkpoint.value()->index_path(), "' is not of the save ", id)
                          : facts.status();
    }
    // The first error is about the name that a user knows. But what cannot be read is not missing.
    const bool missing = error.code() == StatusCode::kNotFound && status.code() != StatusCode::kNotFound;
    if (error.ok() || missing) error = status;
  }
  return error;
}

}  // namespace sok
