#include "cc/checkpoint/fuzz/read_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/checksums.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/testing/memory_files.h"
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

// A good checkpoint: its files and its reference.
struct Image {
  std::map<std::string, std::string> files;
  std::vector<std::string> manifests;  // their paths, in the order of the chain
  std::string prefix;
  std::string folder;
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
  }
  return options;
}
constexpr int kKinds = 4;

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
    image.prefix = request.prefix = "/c/m-" + std::to_string(n);
    request.id = SaveId(static_cast<uint64_t>(n));
    request.delta = saves > 1;
    request.files = &files;
    const auto reference = Save(tables, request);
    if (!reference.ok()) Die("saving: " + reference.status().message());
    image.folder = image.prefix + ".sok/t-" + request.id;
    image.manifests.push_back(TableFile(files, image.folder, kManifestName));
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
  };
  return images;
}

// Applies the changes to the files, with the manifests as JSON.
class Changes {
 public:
  Changes(Image image, Input* input) : image_(std::move(image)), input_(*input) {
    for (const std::string& path : image_.manifests) {
      manifests_.push_back(Json::parse(image_.files[path], nullptr, false));
      manifests_.back().erase("crc32");
      image_.files.erase(path);
    }
    for (const auto& entry : image_.files) arrays_.push_back(entry.first);
  }

  void Run() {
    while (!input_.empty() && raw_.empty()) Change();
    RefreshManifests();
  }
  const std::map<std::string, std::string>& files() const { return image_.files; }

 private:
  void Change() {
    switch (input_.Next(1) % 9) {
      case 0:
        EditArray();
        return;
      case 1:
        return RefreshArray(EditArray());
      case 2: {
        const std::string& path = Array();
        image_.files[path].resize(input_.Below(3000));
        return;
      }
      case 3:
      case 4:
        return EditMember();
      case 5: {
        std::string& one = image_.files[Array()];
        std::string& other = image_.files[Array()];
        one.swap(other);
        return;
      }
      case 6:
        image_.files.erase(Array());
        return;
      case 7:
        raw_ = input_.Rest() + "\n";
        return;
      default:
        checked_ = true;
        raw_ = input_.Rest() + "\n";
    }
  }

  const std::string& Array() { return arrays_[input_.Below(arrays_.size())]; }
  std::string EditArray() {
    const std::string& path = Array();
    std::string& bytes = image_.files[path];
    const size_t at = input_.Below(bytes.size());
    const uint64_t value = input_.Next(8);
    const size_t count = std::min<size_t>(bytes.size() - at, 1 + input_.Below(8));
    std::memcpy(bytes.data() + at, &value, count);
    return path;
  }
  // Updates the checksum of a file in the manifest that lists it. Files here have one block.
  void RefreshArray(const std::string& path) {
    for (size_t i = 0; i < manifests_.size(); ++i) {
      const std::string& manifest = image_.manifests[i];
      const std::string start = manifest.substr(0, manifest.rfind(kManifestName));
      if (path.compare(0, start.size(), start) != 0) continue;
      // The manifest lists the file ".shard-00000.keys.npy" as "shard-00000/keys.npy".
      std::string file = path.substr(start.size());
      file.replace(file.find('.'), 1, "/");
      SetChecksum(&manifests_[i], file, Crc32(image_.files[path]));
    }
  }
  static void SetChecksum(Json* json, const std::string& file, uint32_t checksum) {
    if (json->is_object() && json->contains("file") && (*json)["file"] == file) (*json)["crc32"] = {checksum};
    if (!json->is_structured()) return;
    for (Json& child : *json) SetChecksum(&child, file, checksum);
  }

  void Collect(Json* json, std::vector<Json*>* nodes) {
    nodes->push_back(json);
    if (!json->is_structured()) return;
    for (Json& child : *json) Collect(&child, nodes);
  }
  void EditMember() {
    Json& manifest = manifests_[input_.Below(manifests_.size())];
    std::vector<Json*> nodes;
    Collect(&manifest, &nodes);
    Json* const node = nodes[input_.Below(nodes.size())];
    Json value = Value();
    if (input_.Next(1) % 4 != 0 || !node->is_structured() || node->empty()) {
      *node = std::move(value);
    } else if (node->is_array()) {
      node->push_back(node->front());
    } else {
      node->erase(node->begin().key());
    }
  }
  Json Value() {
    switch (input_.Next(1) % 14) {
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
      default:
        return input_.Next(1);
    }
  }

  static std::string WithChecksum(std::string text) {
    return text + StrCat("\"crc32\": ", Crc32(text), "\n}");
  }
  // Writes the manifests, each with the checksums of those before it.
  void RefreshManifests() {
    std::vector<uint32_t> checksums;
    for (size_t i = 0; i < manifests_.size(); ++i) {
      Json& manifest = manifests_[i];
      if (manifest.is_object() && manifest.contains("chain") && manifest["chain"].is_array()) {
        for (size_t j = 0; j < std::min(checksums.size(), manifest["chain"].size()); ++j) {
          Json& link = manifest["chain"][j];
          if (link.is_object() && link.contains("crc32")) link["crc32"] = checksums[j];
        }
      }
      std::string text = manifest.dump(1, ' ', false, Json::error_handler_t::replace);
      if (text.size() > 2) text.resize(text.size() - 2);
      text = WithChecksum(text + ",\n ");
      if (!raw_.empty() && i + 1 == manifests_.size()) text = checked_ ? WithChecksum(raw_) : raw_;
      checksums.push_back(Crc32(text));
      image_.files[image_.manifests[i]] = std::move(text);
    }
  }

  Image image_;
  Input& input_;
  std::vector<Json> manifests_;  // without their checksums
  std::vector<std::string> arrays_;
  std::string raw_;       // replaces the last manifest if not empty
  bool checked_ = false;  // whether raw_ gets a checksum
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
  parts.files = files;
  parts.optimizer = optimizer;
  auto restore = TableRestore::Open(image.prefix, image.folder, options, parts);
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

}  // namespace

void ReadFuzzedCheckpoint(const uint8_t* data, size_t size) {
  Input input(data, size);
  const size_t which = input.Next(1) % Images().size();
  const uint64_t reader = input.Next(1);
  const bool good = input.empty();
  TableOptions options = OptionsOf(which == 4 ? 3 : static_cast<int>(reader % (kKinds - 1)));
  options.ranks = 1 + static_cast<int>(reader / 4 % 4);
  options.rank = static_cast<int>(reader / 16 % static_cast<uint64_t>(options.ranks));
  if (which == 4) options.capacity = 24;
  Changes changes(Images()[which], &input);
  changes.Run();
  MemoryFiles files;
  Fill(changes.files(), &files);
  Read(Images()[which], &files, options, reader < 200, good);
}

}  // namespace sok
