#include "cc/checkpoint/c_api.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/checkpoint/array_file.h"
#include "cc/checkpoint/chain.h"
#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/foreign_tables.h"
#include "cc/checkpoint/manifest_json.h"
#include "cc/checkpoint/saved_checkpoint.h"
#include "cc/checkpoint/written_tables.h"
#include "cc/initializers/initializer.h"

using Json = nlohmann::ordered_json;

// The definitions of the types that the header declares.
struct sok_checkpoint {
  std::shared_ptr<sok::SavedCheckpoint> checkpoint;
};
struct sok_table {
  std::vector<sok::ChainedTable> chain;
  sok::Mutex mutex;
  // The arrays with one checksum of all bytes that were verified.
  std::set<const sok::PlacedArray*> verified SOK_GUARDED_BY(mutex);
};
struct sok_bundle {
  struct Array {
    std::string name;
    std::unique_ptr<sok::ArrayWriter> writer;
    int64_t left = 0;            // bytes that it lacks
    sok::SavedArray saved = {};  // once it lacks none
  };
  std::unique_ptr<sok::PartWriter> writer;
  std::vector<Array> arrays;
};

namespace sok {
namespace {

// A text for the caller to free; null if memory runs out, which callers take for success of what failed, so
// an error has a text of its own then.
char* Copied(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

// Runs work(), and returns its error as text.
template <typename Work>
char* Run(const Work& work) {
  const Status status = WithinMemory(work);
  if (status.ok()) return nullptr;
  const StatusCode code = status.code();
  const bool known = code == StatusCode::kDataLoss || code == StatusCode::kNotFound ||
                     code == StatusCode::kInvalidArgument || code == StatusCode::kUnimplemented;
  char* text = Copied((known ? '!' : '?') + status.message());
  // A failure without a text would pass for a success.
  if (text == nullptr) std::abort();
  return text;
}

Status Return(const Json& json, char** text) {
  *text = Copied(JsonText(json));
  return *text == nullptr ? ResourceExhausted("not enough memory") : OkStatus();
}

StatusOr<Json> FactsOf(SavedCheckpoint& checkpoint) {
  if (!checkpoint.Has(kCheckpointEntry)) return Json(nullptr);
  SOK_ASSIGN_OR_RETURN(const auto facts, checkpoint.ReadFacts());
  Json json;
  json["id"] = facts.id;
  json["parts"] = facts.parts;
  json["chains"] = facts.chains;
  json["counted_by"] = nullptr;
  if (checkpoint.Has(kCountedByEntry)) {
    SOK_ASSIGN_OR_RETURN(const auto counted_by, checkpoint.ReadString(kCountedByEntry));
    json["counted_by"] = counted_by;
  }
  return json;
}

Json ShardWithPlaces(const SavedCheckpoint& checkpoint, const SavedShard& shard) {
  Json json = ShardJson(shard);
  for (const auto& [name, array] : shard.arrays) {
    json["arrays"][name]["file"] = checkpoint.DataFile(array.shard);
    json["arrays"][name]["offset"] = array.offset;
    json["arrays"][name]["stored_bytes"] = array.stored_bytes();
  }
  return json;
}

Json LinkJson(const ChainedTable& link) {
  const Manifest& manifest = link.manifest;
  const TableOptions& options = manifest.table.options;
  Json json;
  json["prefix"] = link.checkpoint->prefix();
  json["id"] = link.id;
  json["table"] = Json::parse(EncodeTable(manifest));
  json["system"] = manifest.is_foreign() ? Json(manifest.system) : Json(nullptr);
  json["slots_of"] = manifest.slots_of;
  json["left_out"] = manifest.left_out;
  json["static_keys"] =
      options.use_hashtable ? 0 : options.placement.StaticKeys(options.ranks, options.capacity);
  json["shards"] = Json::array();
  for (const SavedShard& shard : manifest.shards) {
    json["shards"].push_back(ShardWithPlaces(*link.checkpoint, shard));
  }
  return json;
}

Status TakeSlotsOf(std::vector<ChainedTable>* chain, const std::string& trained_by) {
  for (ChainedTable& link : *chain) {
    if (!link.manifest.is_foreign()) continue;
    SOK_RETURN_IF_ERROR(TakeSlotsByName(*link.checkpoint, trained_by, &link.manifest));
    if (link.manifest.slots_of != chain->front().manifest.slots_of) {
      return DataLoss("'", chain->front().path, "' and '", link.path, "' have not the same slots");
    }
  }
  return OkStatus();
}

// Verifies an array with one checksum of all bytes, once.
Status VerifyWhole(sok_table* table, const PlacedArray& placed, const std::shared_ptr<FileReader>& file,
                   const std::string& path) {
  if (!placed.whole_crc32c.has_value()) return OkStatus();
  const MutexLock lock(table->mutex);
  if (table->verified.count(&placed) != 0) return OkStatus();
  SOK_ASSIGN_OR_RETURN(const auto reader, ArrayReader::Open(file, path, placed));
  SOK_RETURN_IF_ERROR(reader->Skip(placed.array.bytes()));
  table->verified.insert(&placed);
  return OkStatus();
}

// Reads and verifies the blocks of an array that have the bytes [first, first + bytes).
Status ReadBytes(sok_table* table, SavedCheckpoint& checkpoint, const PlacedArray& placed, int64_t first,
                 int64_t bytes, char* data) {
  const SavedArray& array = placed.array;
  if (first < 0 || bytes < 0 || first > array.bytes() || bytes > array.bytes() - first) {
    return InvalidArgument("'", placed.name, "' has ", array.bytes(), " bytes, and not those from ", first,
                           " to ", first, " + ", bytes);
  }
  SOK_ASSIGN_OR_RETURN(const auto file, checkpoint.Data(placed.shard));
  const std::string path = StrCat(checkpoint.DataFile(placed.shard), ":", placed.name);
  SOK_RETURN_IF_ERROR(VerifyWhole(table, placed, file, checkpoint.DataFile(placed.shard)));
  std::vector<char> block;
  const int64_t end = first + bytes;
  for (int64_t at = first / kBlockBytes * kBlockBytes; at < end; at += kBlockBytes) {
    block.resize(static_cast<size_t>(std::min(kBlockBytes, array.bytes() - at)));
    const int64_t size = static_cast<int64_t>(block.size());
    SOK_RETURN_IF_ERROR(ReadBlock(file.get(), path, placed, at / kBlockBytes, block.data(),
                                  /*crc32c=*/nullptr));
    const int64_t from = std::max(first, at);
    const int64_t to = std::min(end, at + size);
    std::memcpy(data + (from - first), block.data() + (from - at), static_cast<size_t>(to - from));
  }
  return OkStatus();
}

// Writes the next bytes of an array. With its last ones it is finished, so that it takes no more memory.
Status WriteNext(sok_bundle* bundle, sok_bundle::Array* array, const void* data, int64_t bytes) {
  if (bytes > array->left) return Internal("an array of the checkpoint got more bytes than it has");
  SOK_RETURN_IF_ERROR(array->writer->Write(data, bytes));
  array->left -= bytes;
  if (array->left > 0) return OkStatus();
  SOK_RETURN_IF_ERROR(array->writer->Finish());
  array->saved = array->writer->array();
  array->writer = nullptr;
  return bundle->writer->WriteComplete();
}

}  // namespace
}  // namespace sok

extern "C" {

void sok_free(char* text) { std::free(text); }

char* sok_checkpoint_open(const char* prefix, int retired, sok_checkpoint** checkpoint) {
  *checkpoint = nullptr;
  return sok::Run([&]() -> sok::Status {
    auto opened = sok::SavedCheckpoint::Open(sok::PosixFiles(), prefix, retired != 0);
    if (opened.status().code() == sok::StatusCode::kNotFound) return sok::OkStatus();
    SOK_RETURN_IF_ERROR(opened.status());
    auto made = std::make_unique<sok_checkpoint>();
    made->checkpoint = std::move(opened.value());
    *checkpoint = made.release();
    return sok::OkStatus();
  });
}

void sok_checkpoint_close(sok_checkpoint* checkpoint) { delete checkpoint; }

char* sok_checkpoint_describe(sok_checkpoint* checkpoint, char** description) {
  return sok::Run([&]() -> sok::Status {
    SOK_ASSIGN_OR_RETURN(auto facts, sok::FactsOf(*checkpoint->checkpoint));
    SOK_ASSIGN_OR_RETURN(const auto tables, checkpoint->checkpoint->Tables());
    Json json;
    json["tables"] = tables;
    json["facts"] = std::move(facts);
    json["foreign"] = Json::array();
    for (const sok::ForeignTable& table : sok::ForeignTables(*checkpoint->checkpoint)) {
      json["foreign"].push_back({{"name", table.name}, {"system", table.system}});
    }
    return sok::Return(json, description);
  });
}

char* sok_checkpoint_has(sok_checkpoint* checkpoint, const char* name, int* has) {
  return sok::Run([&]() -> sok::Status {
    const auto table = sok::ReadForeignTable(*checkpoint->checkpoint, name);
    if (table.status().code() != sok::StatusCode::kNotFound) {
      *has = 1;
      return table.status();
    }
    SOK_ASSIGN_OR_RETURN(const auto tables, checkpoint->checkpoint->Tables());
    *has = std::binary_search(tables.begin(), tables.end(), name) ? 1 : 0;
    return sok::OkStatus();
  });
}

char* sok_table_open(sok_checkpoint* checkpoint, const char* name, const char* trained_by,
                     sok_table** table) {
  *table = nullptr;
  return sok::Run([&]() -> sok::Status {
    sok::OpenedCheckpoints opened(sok::PosixFiles());
    SOK_ASSIGN_OR_RETURN(auto chain, sok::ReadChain(opened, checkpoint->checkpoint->prefix(), name));
    if (trained_by != nullptr) SOK_RETURN_IF_ERROR(sok::TakeSlotsOf(&chain, trained_by));
    auto made = std::make_unique<sok_table>();
    made->chain = std::move(chain);
    *table = made.release();
    return sok::OkStatus();
  });
}

void sok_table_close(sok_table* table) { delete table; }

char* sok_table_describe(sok_table* table, char** description) {
  return sok::Run([&]() -> sok::Status {
    Json links = Json::array();
    for (const sok::ChainedTable& link : table->chain) links.push_back(sok::LinkJson(link));
    return sok::Return(links, description);
  });
}

char* sok_array_read(sok_table* table, int link, int shard, const char* array, int64_t first, int64_t bytes,
                     void* data) {
  return sok::Run([&]() -> sok::Status {
    const auto in = [](int index, size_t size) { return index >= 0 && static_cast<size_t>(index) < size; };
    if (!in(link, table->chain.size()) ||
        !in(shard, table->chain[static_cast<size_t>(link)].manifest.shards.size())) {
      return sok::InvalidArgument("there is no shard ", shard, " of link ", link);
    }
    const sok::ChainedTable& from = table->chain[static_cast<size_t>(link)];
    const auto& arrays = from.manifest.shards[static_cast<size_t>(shard)].arrays;
    const auto found = arrays.find(array);
    if (found == arrays.end()) return sok::InvalidArgument("there is no array '", array, "'");
    return sok::ReadBytes(table, *from.checkpoint, found->second, first, bytes, static_cast<char*>(data));
  });
}

void sok_table_owners(sok_table* table, const int64_t* keys, int64_t count, int64_t* shards) {
  const sok::TableOptions& options = table->chain.back().manifest.table.options;
  const sok::KeyOwners owners = options.placement.owners(options.ranks);
  for (int64_t i = 0; i < count; ++i) shards[i] = owners.OwnerOf(keys[i]);
}

void sok_table_initial_rows(sok_table* table, const int64_t* keys, int64_t count, float* rows) {
  const sok::TableOptions& options = table->chain.back().manifest.table.options;
  const auto dim = static_cast<size_t>(options.dim);
  const sok::RecordLayout layout(options.dim, options.record);
  std::vector<char> rounded(static_cast<size_t>(layout.bytes()));
  for (int64_t i = 0; i < count; ++i) {
    float* const row = rows + static_cast<size_t>(i) * dim;
    sok::FillRow(options.initializer, keys[i], sok::Span<float>(row, dim));
    if (options.record.weights == sok::FloatType::kFloat32) continue;
    layout.WriteWeights(row, rounded.data());
    layout.ReadWeights(rounded.data(), row);
  }
}

char* sok_remove_leftovers(const char* prefix) {
  return sok::Run([&] { return sok::RemoveLeftovers(sok::PosixFiles(), prefix); });
}

char* sok_remove_checkpoint(const char* prefix, int needed) {
  return sok::Run([&]() -> sok::Status {
    const sok::Status status = sok::RemoveCheckpoint(sok::PosixFiles(), prefix, needed != 0);
    return status.code() == sok::StatusCode::kNotFound ? sok::OkStatus() : status;
  });
}

char* sok_remove_retired(const char* prefix) {
  return sok::Run([&] { return sok::RemoveRetired(sok::PosixFiles(), prefix); });
}

char* sok_keep_checkpoint(const char* prefix) {
  return sok::Run([&] { return sok::KeepCheckpoint(sok::PosixFiles(), prefix); });
}

int sok_checkpoint_has_tensor(sok_checkpoint* checkpoint, const char* name) {
  return checkpoint->checkpoint->Has(name) ? 1 : 0;
}

char* sok_bundle_create(const char* prefix, sok_bundle** bundle) {
  *bundle = nullptr;
  return sok::Run([&]() -> sok::Status {
    SOK_ASSIGN_OR_RETURN(auto writer, sok::PartWriter::Create(sok::PosixFiles(), prefix));
    *bundle = new sok_bundle{std::move(writer), {}};
    return sok::OkStatus();
  });
}

void sok_bundle_close(sok_bundle* bundle) { delete bundle; }

char* sok_bundle_add(sok_bundle* bundle, const char* name, const char* dtype, const int64_t* shape, int dims,
                     const void* data, int64_t bytes) {
  return sok::Run([&] {
    const std::string_view numbers(static_cast<const char*>(data), static_cast<size_t>(bytes));
    return bundle->writer->AddNumbers(name, dtype, {shape, shape + dims}, numbers);
  });
}

char* sok_bundle_new_array(sok_bundle* bundle, const char* name, const char* dtype, const int64_t* shape,
                           int dims, int* array) {
  return sok::Run([&]() -> sok::Status {
    const sok::ArrayType type{dtype, {shape, shape + dims}};
    const int64_t bytes = sok::DataBytes(type);
    if (bytes < 0) return sok::InvalidArgument("'", name, "' cannot be a tensor of ", sok::Describe(type));
    bundle->arrays.push_back({name, bundle->writer->NewArray(name, type), bytes});
    *array = static_cast<int>(bundle->arrays.size()) - 1;
    return bytes > 0 ? sok::OkStatus() : sok::WriteNext(bundle, &bundle->arrays.back(), nullptr, 0);
  });
}

char* sok_bundle_write(sok_bundle* bundle, int array, const void* data, int64_t bytes) {
  return sok::Run([&]() -> sok::Status {
    return bytes > 0 ? sok::WriteNext(bundle, &bundle->arrays[static_cast<size_t>(array)], data, bytes)
                     : sok::OkStatus();
  });
}

char* sok_bundle_add_table(sok_bundle* bundle, sok_table* table, int64_t rows, int64_t filter_freq) {
  return sok::Run([&] {
    std::map<std::string, sok::PlacedArray> arrays;
    const sok::Manifest& source = table->chain.back().manifest;
    const std::string begin = sok::ArrayEntry(source.table.options.name, 0, "");
    for (const sok_bundle::Array& array : bundle->arrays) {
      if (array.name.compare(0, begin.size(), begin) != 0) continue;
      arrays[array.name.substr(begin.size())].array = array.saved;
    }
    return sok::WriteConverted(source, rows, std::move(arrays), filter_freq, bundle->writer.get());
  });
}

char* sok_bundle_copy(sok_bundle* bundle, sok_checkpoint* checkpoint, const char* const* variables,
                      int count) {
  return sok::Run([&]() -> sok::Status {
    SOK_ASSIGN_OR_RETURN(const auto tables, checkpoint->checkpoint->Tables());
    SOK_ASSIGN_OR_RETURN(const auto foreign, sok::EntriesOfForeignTables(*checkpoint->checkpoint,
                                                                         {variables, variables + count}));
    std::vector<std::string> others;
    for (std::string& entry : sok::OtherEntries(*checkpoint->checkpoint, tables)) {
      if (foreign.count(entry) == 0) others.push_back(std::move(entry));
    }
    return sok::CopyEntries(*checkpoint->checkpoint, others, bundle->writer.get());
  });
}

char* sok_bundle_finish(sok_bundle* bundle, const char* id) {
  return sok::Run([&]() -> sok::Status {
    for (const sok_bundle::Array& array : bundle->arrays) {
      if (array.left > 0) return sok::Internal("an array of the checkpoint lacks ", array.left, " bytes");
    }
    if (id != nullptr) {
      SOK_RETURN_IF_ERROR(
          sok::WriteFacts(sok::CheckpointFacts{id, 1, {}}, /*counted_by=*/"", bundle->writer.get()));
    }
    return bundle->writer->Finish();
  });
}

char* sok_slots_of_rules(char** description) {
  return sok::Run([&] {
    Json json;
    for (const auto& [rule, written] : sok::SlotsOfRules()) {
      json[rule]["optimizer"] = written.optimizer;
      for (const auto& [ours, theirs] : written.slots) json[rule]["slots"][ours] = theirs;
    }
    return sok::Return(json, description);
  });
}

}  // extern "C"
