#include "cc/checkpoint/saved_checkpoint.h"

#include <algorithm>
#include <utility>

#include "cc/base/crc32c.h"
#include "cc/base/printable.h"
#include "cc/checkpoint/checkpoint_path.h"
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
    auto folder = ReadSok2Folder(files, prefix);
    SOK_RETURN_IF_ERROR(folder.status());
    return std::shared_ptr<SavedCheckpoint>(new SavedCheckpoint(
        files, prefix, prefix, std::move(folder.value().index), std::move(folder.value().files)));
  }
  const std::string path = retired ? RetiredIndexPath(prefix) : IndexPath(prefix);
  std::string bytes;
  SOK_RETURN_IF_ERROR(ReadWholeFile(files, path, kMaxIndexBytes, &bytes));
  auto index = ParseTensorIndex(bytes, path);
  SOK_RETURN_IF_ERROR(index.status());
  return std::shared_ptr<SavedCheckpoint>(
      new SavedCheckpoint(files, prefix, path, std::move(index.value()), {}));
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

StatusOr<std::shared_ptr<FileReader>> SavedCheckpoint::Data(int shard) {
  const MutexLock lock(mutex_);
  std::shared_ptr<FileReader>& file = data_[shard];
  if (file == nullptr) {
    auto opened = files_.Open(DataFile(shard));
    SOK_RETURN_IF_ERROR(opened.status());
    file = std::move(opened.value());
  }
  return file;
}

Status SavedCheckpoint::RefuseLinks(const std::set<int>& shards) const {
  SOK_RETURN_IF_ERROR(files_.RefuseLink(path_));
  for (const int shard : shards) SOK_RETURN_IF_ERROR(files_.RefuseLink(DataFile(shard)));
  return OkStatus();
}

StatusOr<std::string> SavedCheckpoint::ReadString(const std::string& name, int64_t limit) {
  const auto place = Find(name);
  SOK_RETURN_IF_ERROR(place.status());
  if (place.value().dtype != kStringDtype || !place.value().shape.empty() || place.value().bytes > limit) {
    return DataLoss("'", path_, "' has a '", name, "' that is not a string of at most ", limit, " bytes");
  }
  const auto found = ReadBytes(name, place.value());
  SOK_RETURN_IF_ERROR(found.status());
  std::string text;
  if (ParseStringTensor(found.value(), place.value().crc32c, &text)) return text;
  return WrongChecksum(DataFile(place.value().shard), name);
}

StatusOr<std::string> SavedCheckpoint::ReadNumbers(const std::string& name, const ArrayType& type) {
  const auto place = Find(name);
  SOK_RETURN_IF_ERROR(place.status());
  const ArrayType found{place.value().dtype, place.value().shape};
  int64_t bytes = ItemBytes(type.dtype);
  for (const int64_t size : type.shape) bytes *= size;
  if (found != type || place.value().bytes != bytes) {
    return DataLoss("'", path_, "' has ", place.value().bytes, " bytes of ", Describe(found), " as '", name,
                    "', not ", Describe(type));
  }
  auto numbers = ReadBytes(name, place.value());
  SOK_RETURN_IF_ERROR(numbers.status());
  if (Crc32c(numbers.value()) == place.value().crc32c) return numbers;
  return WrongChecksum(DataFile(place.value().shard), name);
}

StatusOr<std::string> SavedCheckpoint::ReadBytes(const std::string& name, const TensorPlace& place) {
  const auto file = Data(place.shard);
  SOK_RETURN_IF_ERROR(file.status());
  if (place.offset > file.value()->size() || place.bytes > file.value()->size() - place.offset) {
    return DataLoss("'", DataFile(place.shard), "' has ", file.value()->size(),
                    " bytes, and ends before its tensor '", name, "' does");
  }
  std::string bytes(static_cast<size_t>(place.bytes), '\0');
  SOK_RETURN_IF_ERROR(file.value()->ReadAt(place.offset, bytes.data(), place.bytes));
  return bytes;
}

StatusOr<CheckpointFacts> SavedCheckpoint::ReadFacts() {
  const auto text = ReadString(kCheckpointEntry);
  SOK_RETURN_IF_ERROR(text.status());
  JsonReader reader(path_);
  const nlohmann::json json = reader.Parse(text.value());
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
    const auto place = ParseTensorPlace(entry, path_, name);
    SOK_RETURN_IF_ERROR(place.status());
    const bool may_be = place.value().dtype == kStringDtype && place.value().shape.empty() &&
                        place.value().bytes >= kShortestTable && Has(ShardEntry(name, 0));
    if (!may_be) continue;
    const auto text = ReadString(name);
    SOK_RETURN_IF_ERROR(text.status());
    if (IsTable(text.value())) tables.push_back(name);
  }
  return tables;
}

StatusOr<std::set<int>> SavedCheckpoint::ShardsOfTables() {
  const auto tables = Tables();
  SOK_RETURN_IF_ERROR(tables.status());
  std::set<int> shards;
  for (const auto& [name, entry] : index_.entries) {
    if (!IsOfTables(name, tables.value())) continue;
    const auto place = Find(name);
    SOK_RETURN_IF_ERROR(place.status());
    shards.insert(place.value().shard);
  }
  return shards;
}

StatusOr<Manifest> SavedCheckpoint::ReadTable(const std::string& name) {
  auto foreign = ReadForeignTable(*this, name);
  if (foreign.status().code() != StatusCode::kNotFound) return foreign;
  const auto text = ReadString(name);
  SOK_RETURN_IF_ERROR(text.status());
  if (!IsTable(text.value())) {
    return InvalidArgument("'", path_, "' has a string '", name, "', which is not a table");
  }
  ManifestReader reader(StrCat(path_, ":", name));
  int shards = 0;
  SOK_RETURN_IF_ERROR(reader.ReadTable(text.value(), name, &shards));
  for (int shard = 0; shard < shards; ++shard) {
    const auto of_shard = ReadString(ShardEntry(name, shard));
    SOK_RETURN_IF_ERROR(of_shard.status());
    SOK_RETURN_IF_ERROR(reader.AddShard(of_shard.value()));
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
      const auto place = Find(placed.name);
      if (place.status().code() == StatusCode::kNotFound) return DataLoss(place.status().message());
      SOK_RETURN_IF_ERROR(place.status());
      const ArrayType type{place.value().dtype, place.value().shape};
      if (type != placed.array.type || place.value().bytes != placed.array.bytes()) {
        return DataLoss("'", path_, "' has ", place.value().bytes, " bytes of ", Describe(type), " as '",
                        placed.name, "', but its table says ", Describe(placed.array.type));
      }
      placed.shard = place.value().shard;
      placed.offset = place.value().offset;
      if (type.dtype == DtypeOf(FloatType::kFloat16) || type.dtype == DtypeOf(FloatType::kBfloat16)) {
        placed.array.type.dtype = DtypeOf(FloatType::kFloat32);
        placed.array.crc32c.clear();
        placed.stored_as = type.dtype;
        placed.whole_crc32c = place.value().crc32c;
      }
    }
    ++shard;
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<SavedCheckpoint>> OpenedCheckpoints::Get(const std::string& prefix, bool retired) {
  std::shared_ptr<SavedCheckpoint>& known = opened_[{prefix, retired}];
  if (known == nullptr) {
    auto opened = SavedCheckpoint::Open(files_, prefix, retired);
    SOK_RETURN_IF_ERROR(opened.status());
    known = std::move(opened.value());
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
