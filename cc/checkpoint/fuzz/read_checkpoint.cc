// A fuzz target: the reader of checkpoints must bear any change of a good one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/crc32c.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/rewritten_checkpoint.h"
#include "cc/checkpoint/testing/saved_ranks.h"

namespace sok {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

// Reads the input number by number; zeros after its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return at_ == size_; }
  uint64_t Next(int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes && at_ < size_; ++i) value |= uint64_t{data_[at_++]} << (8 * i);
    return value;
  }
  size_t Below(size_t limit) { return limit == 0 ? 0 : static_cast<size_t>(Next(2) % limit); }
  std::string Rest() {
    const std::string rest(reinterpret_cast<const char*>(data_ + at_), size_ - at_);
    at_ = size_;
    return rest;
  }

 private:
  const uint8_t* const data_;
  const size_t size_;
  size_t at_ = 0;
};

// A good checkpoint: the files of its chain.
struct Image {
  std::map<std::string, std::string> files;
  std::vector<std::string> prefixes;  // in the order of the chain
};

TableOptions BaseOptions() {
  TableOptions options;
  options.name = "t";
  options.dim = 3;
  return options;
}

TableOptions OptionsOf(int kind) {
  TableOptions options = BaseOptions();
  if (kind == 1) {
    options.admission.kind = Admission::Kind::kCounter;
    options.admission.filter_freq = 3;
    options.eviction.kind = Eviction::Kind::kGlobalStep;
    options.eviction.steps_to_live = 100;
    options.capacity = 60;
    options.on_full = OnFull::kEvictLru;
  } else if (kind == 2) {
    options.admission.kind = Admission::Kind::kBloom;
    options.admission.filter_freq = 3;
    options.admission.max_element_size = 40;
    options.admission.counter_bits = 16;
  } else if (kind == 3) {
    options.use_hashtable = false;
    options.capacity = 12;
  } else if (kind == 4) {
    options.record = RecordFormat{FloatType::kBfloat16, FloatType::kBfloat16};
  }
  return options;
}

Image MakeImage(int kind, const std::string& optimizer, const std::vector<float>& hyper, int saves) {
  MemoryFiles files;
  std::mt19937_64 random(7);
  const Tables tables = MakeTables(OptionsOf(kind), 2);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 24; ++key) keys.push_back(kind == 3 ? key : key * 0x123456789abcdef);
  Image image;
  for (int n = 1; n <= saves; ++n) {
    for (int t = 0; t < 4; ++t) {
      if (!TrainOnSome(tables, optimizer, hyper, keys, 0.4, &random).ok()) Die("training");
    }
    if (n == 2 && kind != 3 && !Erase(tables[0].get(), keys).ok()) Die("erasing");
    SaveRequest request;
    request.prefix = "/c/m-" + std::to_string(n);
    request.id = SaveId(static_cast<uint64_t>(n));
    request.delta = saves > 1;
    request.files = &files;
    const auto reference = Save(tables, request);
    if (!reference.ok()) Die("saving: " + reference.status().message());
    image.prefixes.push_back(request.prefix);
  }
  for (const auto& [path, bytes] : files.AllFiles()) image.files[path] = *bytes;
  return image;
}

const std::vector<Image>& Images() {
  static const std::vector<Image> images = {
      MakeImage(0, "lazy_adam", {0.01f, 0.9f, 0.999f, 1e-8f}, 1),
      MakeImage(1, "adagrad", {0.1f, 0.1f, 1e-7f}, 3),
      MakeImage(0, "adam", {0.01f, 0.9f, 0.999f, 1e-8f}, 3),
      MakeImage(2, "sgd", {0.1f}, 2),
      MakeImage(3, "adam", {0.01f, 0.9f, 0.999f, 1e-8f}, 2),
      MakeImage(4, "lazy_adam", {0.01f, 0.9f, 0.999f, 1e-8f}, 2),
  };
  return images;
}

// Changes tensors of the checkpoints on a disk, with the tables' entries as JSON, and writes them again.
class Changes {
 public:
  Changes(MemoryFiles* files, const Image& image, Input* input) : files_(*files), input_(*input) {
    for (const std::string& prefix : image.prefixes) checkpoints_.emplace_back(*files, prefix);
  }

  void Run() {
    bool edits_bytes = false;
    while (!input_.empty() && !edits_bytes) edits_bytes = Change();
    for (const RewrittenCheckpoint& checkpoint : checkpoints_) checkpoint.Write();
    if (edits_bytes) EditBytes();
  }

 private:
  using Array = RewrittenCheckpoint::Array;

  // Returns whether the rest of the input changes bytes of files.
  bool Change() {
    RewrittenCheckpoint& checkpoint = checkpoints_[input_.Below(checkpoints_.size())];
    switch (input_.Next(1) % 8) {
      case 0:
        EditArray(&checkpoint);
        return false;
      case 1:
        RefreshChecksum(&checkpoint, EditArray(&checkpoint));
        return false;
      case 2: {
        Array& array = checkpoint.arrays.at(Name(checkpoint.arrays));
        array.type.shape = {static_cast<int64_t>(input_.Below(300))};
        array.bytes.resize(static_cast<size_t>(DataBytes(array.type)));
        return false;
      }
      case 3:
      case 4:
        EditMember(&checkpoint.strings.at(Name(checkpoint.strings)));
        return false;
      case 5:
        std::swap(checkpoint.arrays.at(Name(checkpoint.arrays)),
                  checkpoint.arrays.at(Name(checkpoint.arrays)));
        return false;
      case 6:
        if (checkpoint.arrays.size() > 1) checkpoint.arrays.erase(Name(checkpoint.arrays));
        return false;
      default:
        return true;
    }
  }

  template <typename Map>
  std::string Name(const Map& map) {
    auto found = map.begin();
    std::advance(found, static_cast<int64_t>(input_.Below(map.size())));
    return found->first;
  }
  std::string EditArray(RewrittenCheckpoint* checkpoint) {
    const std::string name = Name(checkpoint->arrays);
    Overwrite(&checkpoint->arrays.at(name).bytes);
    return name;
  }
  void Overwrite(std::string* bytes) {
    if (bytes->empty()) return;
    const size_t at = input_.Below(bytes->size());
    const uint64_t value = input_.Next(8);
    std::memcpy(bytes->data() + at, &value, std::min<size_t>(bytes->size() - at, 1 + input_.Below(8)));
  }
  // Makes a shard name the checksum that its array has. Arrays here have one block.
  static void RefreshChecksum(RewrittenCheckpoint* checkpoint, const std::string& name) {
    const size_t slash = name.rfind('/');
    std::string& text = checkpoint->strings[name.substr(0, slash)];
    Json json = Json::parse(text, nullptr, false);
    const std::string array = name.substr(slash + 1);
    if (!json.is_object() || !json.contains("arrays") || !json["arrays"].is_object() ||
        !json["arrays"].contains(array) || !json["arrays"][array].is_object()) {
      return;
    }
    json["arrays"][array]["crc32c"] = {Crc32c(checkpoint->arrays[name].bytes)};
    text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  // Changes bytes of any file.
  void EditBytes() {
    std::map<std::string, std::string*> all = files_.AllFiles();
    while (!input_.empty()) Overwrite(all.at(Name(all)));
  }

  void Collect(Json* json, std::vector<Json*>* nodes) {
    nodes->push_back(json);
    if (!json->is_structured()) return;
    for (Json& child : *json) Collect(&child, nodes);
  }
  void EditMember(std::string* text) {
    Json json = Json::parse(*text, nullptr, false);
    if (json.is_discarded() || input_.Next(1) % 8 == 0) {
      *text = std::string(input_.Below(50), '[');
      return;
    }
    std::vector<Json*> nodes;
    Collect(&json, &nodes);
    Json* const node = nodes[input_.Below(nodes.size())];
    Json value = Value();
    if (input_.Next(1) % 4 != 0 || !node->is_structured() || node->empty()) {
      *node = std::move(value);
    } else if (node->is_array()) {
      node->push_back(node->front());
    } else {
      node->erase(node->begin().key());
    }
    *text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  Json Value() {
    switch (input_.Next(1) % 15) {
      case 0:
        return nullptr;
      case 1:
        return Json::array();
      case 2:
        return Json::object();
      case 3:
        return true;
      case 4:
        return "../../../x";
      case 5:
        return std::string(input_.Below(300), 'a');
      case 6:
        return INT64_MAX;
      case 7:
        return UINT64_MAX;
      case 8:
        return -1;
      case 9:
        return 1e300;
      case 10:
        return "adam";
      case 11:
        return input_.Next(8);
      case 12:
        return "nan";
      case 13:
        return "bfloat16";
      default:
        return input_.Next(1);
    }
  }

  MemoryFiles& files_;
  Input& input_;
  std::vector<RewrittenCheckpoint> checkpoints_;
};

void Fill(const std::map<std::string, std::string>& contents, MemoryFiles* files) {
  for (const auto& [path, bytes] : contents) {
    const bool made = MakeFolders(*files, path.substr(0, path.rfind('/'))).ok();
    if (!made || !WriteWholeFile(*files, path, bytes).ok()) Die("making files");
  }
}

// Reads the checkpoint, which must succeed if `good`.
void Read(const Image& image, MemoryFiles* files, const TableOptions& options, bool optimizer, bool good) {
  RestoreParts parts;
  parts.optimizer = optimizer;
  parts.map_weights = !optimizer;
  OpenedCheckpoints opened(*files);
  auto restore = TableRestore::Open(opened, image.prefixes.back(), "t", options, parts);
  if (!restore.ok()) {
    if (restore.status().message().empty()) Die("an error without a message");
    if (good) Die("opening: " + restore.status().message());
    return;
  }
  const Status checked = restore.value()->Check();
  const auto table = Load(restore.value().get());
  const Status& loaded = table.status();
  if (good && !(checked.ok() && loaded.ok())) Die("reading: " + checked.message() + loaded.message());
  // After a good check, the load can only find repeated keys, or too many keys.
  const bool expected = loaded.ok() || loaded.code() == StatusCode::kDataLoss ||
                        loaded.code() == StatusCode::kResourceExhausted;
  if (checked.ok() && !expected) Die("loading: " + loaded.message());
  // Whatever was in the files, the table must be usable.
  if (loaded.ok()) {
    TableState state;
    AddState(table.value().get(), &state);
    BringUpToDate(table.value().get());
  }
}

void ReadFuzzedCheckpoint(const uint8_t* data, size_t size) {
  Input input(data, size);
  const size_t which = input.Next(1) % Images().size();
  const uint64_t reader = input.Next(1);
  const bool good = input.empty();
  TableOptions options = OptionsOf(which == 4 ? 3 : static_cast<int>(reader % 3));
  if (which == 5 && reader % 2 == 0) options.record = OptionsOf(4).record;
  options.ranks = 1 + static_cast<int>(reader / 4 % 4);
  options.rank = static_cast<int>(reader / 16 % static_cast<uint64_t>(options.ranks));
  if (which == 4) options.capacity = 24;
  MemoryFiles files;
  Fill(Images()[which].files, &files);
  Changes(&files, Images()[which], &input).Run();
  Read(Images()[which], &files, options, reader < 200, good);
}

}  // namespace
}  // namespace sok

// Makes a checkpoint from the bytes and reads it. The first two bytes choose a good checkpoint and its
// reader. The others describe changes: of bytes of arrays, members of manifests, and lengths of files. Most
// checksums are updated, so that the changes reach the reader. Aborts if the reader fails on an unchanged
// checkpoint, or does anything else that it must not do.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sok::ReadFuzzedCheckpoint(data, size);
  return 0;
}
