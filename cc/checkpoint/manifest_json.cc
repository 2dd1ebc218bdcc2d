#include "cc/checkpoint/manifest_json.h"

#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "cc/base/printable.h"

namespace sok {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

template <typename Enum>
struct Word {
  Enum value;
  const char* word;
};

constexpr Word<InitializerKind> kInitializers[] = {{InitializerKind::kConstant, "constant"},
                                                   {InitializerKind::kUniform, "uniform"},
                                                   {InitializerKind::kNormal, "normal"},
                                                   {InitializerKind::kTruncatedNormal, "truncated_normal"},
                                                   {InitializerKind::kGiven, "given"}};
constexpr Word<FloatType> kNarrowRows[] = {{FloatType::kFloat16, "float16"},
                                           {FloatType::kBfloat16, "bfloat16"}};
constexpr Word<FloatType> kNarrowSlots[] = {{FloatType::kBfloat16, "bfloat16"}};
constexpr Word<OnFull> kOnFull[] = {
    {OnFull::kError, "error"}, {OnFull::kEvictLru, "evict_lru"}, {OnFull::kEvictLfu, "evict_lfu"}};
constexpr Word<Admission::Kind> kAdmissions[] = {{Admission::Kind::kCounter, "counter"},
                                                 {Admission::Kind::kBloom, "bloom"}};
constexpr Word<Eviction::Kind> kEvictions[] = {{Eviction::Kind::kGlobalStep, "global_step"},
                                               {Eviction::Kind::kL2Weight, "l2_weight"}};

// The names of slots, which are parts of names of arrays.
constexpr char kSlotCharacters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
constexpr char kArrayCharacters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";

template <typename Words, typename Enum>
const char* WordOf(const Words& words, Enum value) {
  for (const auto& known : words) {
    if (known.value == value) return known.word;
  }
  return "";
}

template <typename Words>
auto ReadWord(JsonReader* reader, const Json& object, const char* name, const Words& words) {
  const std::string word = reader->String(object, name);
  for (const auto& known : words) {
    if (word == known.word) return known.value;
  }
  reader->Fail("has an unknown \"", name, "\": \"", word, "\"");
  return std::begin(words)->value;
}

// Manifests leave float32 out.
template <typename Words>
FloatType ReadFloatType(JsonReader* reader, const Json& json, const char* name, const Words& narrow) {
  if (!reader->ok() || !json.contains(name)) return FloatType::kFloat32;
  return ReadWord(reader, json, name, narrow);
}

OrderedJson AdmissionJson(const SavedTable& table) {
  const Admission& admission = table.options.admission;
  if (admission.kind == Admission::Kind::kNone) return nullptr;
  OrderedJson json;
  json["kind"] = WordOf(kAdmissions, admission.kind);
  json["filter_freq"] = admission.filter_freq;
  json["default_value"] = FloatJson(admission.default_value);
  if (admission.before_lookup) json["before_lookup"] = true;
  if (admission.kind != Admission::Kind::kBloom) return json;
  json["max_element_size"] = admission.max_element_size;
  json["false_positive_probability"] = DoubleJson(admission.false_positive_probability);
  json["hashes"] = table.hashes;
  json["counters"] = table.counters;
  json["counter_bits"] = admission.counter_bits;
  if (table.counters_in_blocks) json["in_blocks"] = true;
  return json;
}

bool ReadTrueOrAbsent(JsonReader* reader, const Json& json, const char* name) {
  if (!reader->ok() || !json.contains(name)) return false;
  const bool value = reader->Bool(json, name);
  if (!value) reader->Fail("names the false \"", name, "\", which manifests leave out");
  return value;
}

void ReadAdmission(JsonReader* reader, const Json& json, SavedTable* table) {
  if (json.is_null()) return;
  Admission& admission = table->options.admission;
  admission.kind = ReadWord(reader, json, "kind", kAdmissions);
  admission.filter_freq = reader->Int(json, "filter_freq", INT64_MIN);
  admission.default_value = reader->Float(json, "default_value");
  admission.before_lookup = ReadTrueOrAbsent(reader, json, "before_lookup");
  if (admission.kind != Admission::Kind::kBloom) return;
  admission.max_element_size = reader->Int(json, "max_element_size", 1);
  admission.false_positive_probability = reader->Double(json, "false_positive_probability");
  admission.counter_bits = static_cast<int>(reader->Int(json, "counter_bits", 8, 64));
  table->hashes = static_cast<int>(reader->Int(json, "hashes", 1, INT32_MAX));
  table->counters = reader->Int(json, "counters", 1);
  table->counters_in_blocks = ReadTrueOrAbsent(reader, json, "in_blocks");
}

constexpr char kGlobalStepClock[] = "global_step";

OrderedJson EvictionJson(const Eviction& eviction) {
  if (eviction.kind == Eviction::Kind::kNone) return nullptr;
  OrderedJson json;
  json["kind"] = WordOf(kEvictions, eviction.kind);
  if (eviction.kind == Eviction::Kind::kGlobalStep) {
    json["steps_to_live"] = eviction.steps_to_live;
  } else {
    json["threshold"] = FloatJson(eviction.l2_weight_threshold);
  }
  return json;
}

Eviction ReadEviction(JsonReader* reader, const Json& json) {
  Eviction eviction;
  if (json.is_null()) return eviction;
  eviction.kind = ReadWord(reader, json, "kind", kEvictions);
  if (eviction.kind == Eviction::Kind::kGlobalStep) {
    eviction.steps_to_live = reader->Int(json, "steps_to_live", INT64_MIN);
  } else {
    eviction.l2_weight_threshold = reader->Float(json, "threshold");
  }
  return eviction;
}

// Tables whose rows are placed by key have no "placement".
Placement ReadPlacement(JsonReader* reader, const Json& json) {
  const auto placement = Placement::Parse(reader->String(json, "placement"));
  if (!placement.ok()) {
    reader->Fail("has a ", placement.status().message());
  } else if (placement.value() == Placement()) {
    reader->Fail("names the placement that tables without one have");
  }
  return placement.ok() ? placement.value() : Placement();
}

OrderedJson InitializerJson(const Initializer& initializer) {
  OrderedJson json = JsonObject(5);
  json["kind"] = WordOf(kInitializers, initializer.kind);
  json["a"] = FloatJson(initializer.a);
  json["b"] = FloatJson(initializer.b);
  json["seed"] = std::to_string(initializer.seed);
  if (initializer.rows > 0) json["rows"] = initializer.rows;
  return json;
}

Initializer ReadInitializer(JsonReader* reader, const Json& json) {
  Initializer initializer;
  initializer.kind = ReadWord(reader, json, "kind", kInitializers);
  initializer.a = reader->Float(json, "a");
  initializer.b = reader->Float(json, "b");
  const std::string seed = reader->String(json, "seed");
  errno = 0;
  initializer.seed = std::strtoull(seed.c_str(), nullptr, 10);
  if (errno != 0 || std::to_string(initializer.seed) != seed) {
    reader->Fail("has a \"seed\" that is not a 64-bit number");
  }
  if (reader->ok() && json.contains("rows")) {
    initializer.rows = static_cast<uint32_t>(reader->Int(json, "rows", 1, UINT32_MAX));
  }
  return initializer;
}

OrderedJson ArrayJson(const SavedArray& array) {
  OrderedJson json = JsonObject(3);
  json["dtype"] = array.type.dtype;
  json["shape"] = array.type.shape;
  json["crc32c"] = array.crc32c;
  return json;
}

SavedArray ReadArray(JsonReader* reader, const Json& json, const std::string& name) {
  SavedArray array;
  array.type.dtype = reader->String(json, "dtype");
  for (const Json& size : reader->Array(json, "shape")) {
    array.type.shape.push_back(reader->AsInt(size, "shape", 0, INT64_MAX));
  }
  const Json& checksums = reader->Array(json, "crc32c");
  array.crc32c.reserve(checksums.size());
  for (const Json& checksum : checksums) {
    array.crc32c.push_back(static_cast<uint32_t>(reader->AsInt(checksum, "crc32c", 0, UINT32_MAX)));
  }
  if (name.empty() || name.find_first_not_of(kArrayCharacters) != std::string::npos) {
    reader->Fail("has an array with the unknown name \"", name, "\"");
  }
  const int64_t bytes = array.bytes();
  if (bytes < 0) {
    reader->Fail("has the array \"", name, "\" of an impossible type: ", Describe(array.type));
  } else if (static_cast<int64_t>(array.crc32c.size()) != BlocksOf(bytes)) {
    reader->Fail("has ", array.crc32c.size(), " checksums for the array \"", name, "\", not ",
                 BlocksOf(bytes));
  }
  return array;
}

std::optional<SavedOptimizer::History> ReadHistory(JsonReader* reader, const Json& json) {
  if (json.is_null()) return std::nullopt;
  SavedOptimizer::History history;
  history.beta1 = reader->Float(json, "beta1");
  history.beta2 = reader->Float(json, "beta2");
  history.epsilon = reader->Float(json, "epsilon");
  history.first_step = reader->Int(json, "first_step", 0);
  return history;
}

}  // namespace

OrderedJson TableJson(const SavedTable& table) {
  const TableOptions& options = table.options;
  OrderedJson json = JsonObject(12);
  json["name"] = options.name;
  json["dim"] = options.dim;
  if (options.record.weights != FloatType::kFloat32) json["row_dtype"] = NameOf(options.record.weights);
  json["key_dtype"] = options.key_dtype;
  json["hashed"] = options.use_hashtable;
  json["capacity"] = options.capacity;
  json["on_full"] = WordOf(kOnFull, options.on_full);
  json["initializer"] = InitializerJson(options.initializer);
  json["admission"] = AdmissionJson(table);
  json["eviction"] = EvictionJson(options.eviction);
  if (table.counts_global_steps) json["clock"] = kGlobalStepClock;
  if (options.placement != Placement()) json["placement"] = options.placement.Text();
  return json;
}

SavedTable ReadTable(JsonReader* reader, const Json& json) {
  SavedTable table;
  TableOptions& options = table.options;
  options.name = reader->String(json, "name");
  if (options.name.empty()) reader->Fail("has an empty \"name\"");
  options.dim = reader->Int(json, "dim", 1, TableOptions::kMaxDim);
  options.record.weights = ReadFloatType(reader, json, "row_dtype", kNarrowRows);
  options.key_dtype = reader->String(json, "key_dtype");
  if (options.key_dtype != "int64" && options.key_dtype != "int32" && options.key_dtype != "uint32") {
    reader->Fail("has an unknown \"key_dtype\": \"", options.key_dtype, "\"");
  }
  options.use_hashtable = reader->Bool(json, "hashed");
  options.capacity = reader->Int(json, "capacity", 0);
  options.on_full = ReadWord(reader, json, "on_full", kOnFull);
  options.initializer = ReadInitializer(reader, reader->Object(json, "initializer"));
  ReadAdmission(reader, reader->Member(json, "admission"), &table);
  options.eviction = ReadEviction(reader, reader->Member(json, "eviction"));
  // Tables that count their own steps have no "clock".
  table.counts_global_steps = reader->ok() && json.contains("clock");
  if (table.counts_global_steps && reader->String(json, "clock") != kGlobalStepClock) {
    reader->Fail("has an unknown \"clock\"");
  }
  if (reader->ok() && json.contains("placement")) options.placement = ReadPlacement(reader, json);
  return table;
}

OrderedJson OptimizerJson(const std::optional<SavedOptimizer>& optimizer) {
  if (!optimizer.has_value()) return nullptr;
  OrderedJson json = JsonObject(5);
  json["name"] = optimizer->name;
  json["steps"] = optimizer->steps;
  OrderedJson& hyper = json["hyper"] = JsonObject(optimizer->hyper.size());
  for (const auto& [name, value] : optimizer->hyper) hyper[name] = FloatJson(value);
  json["slots"] = OrderedJson::array();
  for (const SavedOptimizer::Slot& slot : optimizer->slots) {
    OrderedJson entry = JsonObject(4);
    entry["name"] = slot.name;
    entry["width"] = slot.width;
    if (slot.type != FloatType::kFloat32) entry["dtype"] = NameOf(slot.type);
    entry["fill"] = FloatJson(slot.fill);
    json["slots"].push_back(std::move(entry));
  }
  json["history"] = nullptr;
  if (optimizer->history.has_value()) {
    OrderedJson history;
    history["beta1"] = FloatJson(optimizer->history->beta1);
    history["beta2"] = FloatJson(optimizer->history->beta2);
    history["epsilon"] = FloatJson(optimizer->history->epsilon);
    history["first_step"] = optimizer->history->first_step;
    json["history"] = std::move(history);
  }
  return json;
}

std::optional<SavedOptimizer> ReadOptimizer(JsonReader* reader, const Json& json) {
  if (json.is_null()) return std::nullopt;
  SavedOptimizer optimizer;
  optimizer.name = reader->String(json, "name");
  if (optimizer.name.empty()) reader->Fail("has an optimizer without a name");
  optimizer.steps = reader->Int(json, "steps", 0, kMaxCount);
  const Json& hyper = reader->Object(json, "hyper");
  for (auto member = hyper.begin(); reader->ok() && member != hyper.end(); ++member) {
    optimizer.hyper.emplace_back(member.key(), reader->AsFloat(member.value(), member.key()));
  }
  for (const Json& entry : reader->Array(json, "slots")) {
    SavedOptimizer::Slot slot;
    slot.name = reader->String(entry, "name");
    slot.width = reader->Int(entry, "width", 1, TableOptions::kMaxDim);
    slot.type = ReadFloatType(reader, entry, "dtype", kNarrowSlots);
    slot.fill = reader->Float(entry, "fill");
    if (slot.name.empty() || slot.name.find_first_not_of(kSlotCharacters) != std::string::npos) {
      reader->Fail("has a slot with the invalid name \"", slot.name, "\"");
    }
    for (const SavedOptimizer::Slot& other : optimizer.slots) {
      if (other.name == slot.name) reader->Fail("has two slots with the name \"", slot.name, "\"");
    }
    if (!reader->ok()) return std::nullopt;
    optimizer.slots.push_back(std::move(slot));
  }
  optimizer.history = ReadHistory(reader, reader->Member(json, "history"));
  return optimizer;
}

OrderedJson ChainJson(const std::vector<ChainLink>& chain) {
  OrderedJson json = OrderedJson::array();
  for (const ChainLink& link : chain) {
    OrderedJson entry;
    entry["prefix"] = link.prefix;
    entry["id"] = link.id;
    json.push_back(std::move(entry));
  }
  return json;
}

std::vector<ChainLink> ReadChain(JsonReader* reader, const Json& json) {
  std::vector<ChainLink> chain;
  if (!json.is_array()) reader->Fail("has a \"chain\" that is not a list");
  for (const Json& entry : json) {
    if (!reader->ok()) return {};
    ChainLink link;
    link.prefix = reader->String(entry, "prefix");
    link.id = reader->String(entry, "id");
    if (link.prefix.empty() || link.prefix[0] == '/' || !CheckPath(link.prefix).ok()) {
      reader->Fail("has a \"chain\" with the prefix \"", link.prefix,
                   "\", which is not relative, or not a valid path");
    }
    chain.push_back(std::move(link));
  }
  return chain;
}

OrderedJson ShardJson(const SavedShard& shard) {
  OrderedJson json = JsonObject(6);
  json["rows"] = shard.rows;
  json["table_rows"] = shard.table_rows;
  json["steps"] = shard.steps;
  if (shard.uses.has_value()) json["uses"] = *shard.uses;
  if (shard.optimizer.has_value()) json["optimizer"] = OptimizerJson(shard.optimizer);
  OrderedJson& arrays = json["arrays"] = JsonObject(shard.arrays.size());
  for (const auto& [name, array] : shard.arrays) arrays[name] = ArrayJson(array.array);
  return json;
}

SavedShard ReadShard(JsonReader* reader, const Json& json) {
  SavedShard result;
  result.rows = reader->Int(json, "rows", 0);
  result.table_rows = reader->Int(json, "table_rows", 0);
  result.steps = reader->Int(json, "steps", 0, kMaxCount);
  if (reader->ok() && json.contains("uses")) result.uses = reader->Int(json, "uses", 0, kMaxCount);
  if (reader->ok() && json.contains("optimizer")) result.optimizer = ReadOptimizer(reader, json["optimizer"]);
  const Json& arrays = reader->Object(json, "arrays");
  for (auto entry = arrays.begin(); reader->ok() && entry != arrays.end(); ++entry) {
    result.arrays[entry.key()].array = ReadArray(reader, entry.value(), entry.key());
  }
  return result;
}

}  // namespace sok
