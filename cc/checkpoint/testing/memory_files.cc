#include "cc/checkpoint/testing/memory_files.h"

#include <cstring>
#include <filesystem>
#include <utility>

namespace sok {

class MemoryFiles::Writer final : public FileWriter {
 public:
  Writer(MemoryFiles* files, std::shared_ptr<Node> node) : files_(files), node_(std::move(node)) {}

  Status WriteAt(int64_t offset, const void* data, int64_t bytes) override {
    const MutexLock lock(files_->mutex_);
    const size_t end = static_cast<size_t>(offset + bytes);
    if (node_->bytes.size() < end) node_->bytes.resize(end);
    std::memcpy(node_->bytes.data() + offset, data, static_cast<size_t>(bytes));
    return OkStatus();
  }
  Status Sync() override {
    const MutexLock lock(files_->mutex_);
    node_->synced_bytes = node_->bytes;
    return OkStatus();
  }

 private:
  MemoryFiles* const files_;
  const std::shared_ptr<Node> node_;
};

class MemoryFiles::Reader final : public FileReader {
 public:
  Reader(MemoryFiles* files, std::string path, std::shared_ptr<Node> node)
      : files_(files), path_(std::move(path)), node_(std::move(node)) {}

  int64_t size() const override { return static_cast<int64_t>(node_->bytes.size()); }
  Status ReadAt(int64_t offset, void* data, int64_t bytes) override {
    if (bytes > size() - offset) return DataLoss("'", path_, "' ended early");
    std::memcpy(data, node_->bytes.data() + offset, static_cast<size_t>(bytes));
    return OkStatus();
  }
  void ReadAhead(int64_t offset, int64_t /*bytes*/) override {
    const MutexLock lock(files_->mutex_);
    files_->read_aheads_.push_back(offset);
  }

 private:
  MemoryFiles* const files_;
  const std::string path_;
  const std::shared_ptr<Node> node_;
};

MemoryFiles::MemoryFiles() : root_(std::make_shared<Node>()) { root_->folder = true; }

std::shared_ptr<MemoryFiles::Node> MemoryFiles::Find(const std::string& path) const {
  std::shared_ptr<Node> node = root_;
  for (const auto& part : std::filesystem::path(path).lexically_normal().relative_path()) {
    if (part.empty()) continue;
    if (!node->folder) return nullptr;
    const auto found = node->names.find(part.string());
    if (found == node->names.end()) return nullptr;
    node = found->second;
  }
  return node;
}

std::shared_ptr<MemoryFiles::Node> MemoryFiles::Parent(const std::string& path, std::string* name) const {
  const std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
  *name = normal.filename().string();
  std::shared_ptr<Node> parent = Find(normal.parent_path().string());
  return parent != nullptr && parent->folder && !name->empty() ? parent : nullptr;
}

Status MemoryFiles::MakeFolder(const std::string& path, bool* made) {
  const MutexLock lock(mutex_);
  *made = false;
  if (Find(path) == root_) return OkStatus();
  std::string name;
  const std::shared_ptr<Node> parent = Parent(path, &name);
  if (parent == nullptr) return NotFound("No folder for '", path, "'");
  std::shared_ptr<Node>& node = parent->names[name];
  *made = node == nullptr;
  if (*made) {
    node = std::make_shared<Node>();
    node->folder = true;
  }
  return node->folder ? OkStatus() : FailedPrecondition("'", path, "' is a file");
}

StatusOr<std::unique_ptr<FileWriter>> MemoryFiles::Create(const std::string& path) {
  const MutexLock lock(mutex_);
  std::string name;
  const std::shared_ptr<Node> parent = Parent(path, &name);
  if (parent == nullptr) return NotFound("No folder for '", path, "'");
  std::shared_ptr<Node>& node = parent->names[name];
  if (node != nullptr) return FailedPrecondition("'", path, "' exists");
  node = std::make_shared<Node>();
  return std::unique_ptr<FileWriter>(std::make_unique<Writer>(this, node));
}

StatusOr<std::unique_ptr<FileReader>> MemoryFiles::Open(const std::string& path) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Node> node = Find(path);
  if (node == nullptr) return NotFound("No file '", path, "'");
  if (node->folder) return DataLoss("'", path, "' is not a file");
  return std::unique_ptr<FileReader>(std::make_unique<Reader>(this, path, node));
}

Status MemoryFiles::SyncFolder(const std::string& path) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Node> node = Find(path);
  if (node == nullptr || !node->folder) return NotFound("No folder '", path, "'");
  node->synced_names = node->names;
  return OkStatus();
}

Status MemoryFiles::Rename(const std::string& from, const std::string& to) {
  const MutexLock lock(mutex_);
  std::string from_name;
  std::string to_name;
  const std::shared_ptr<Node> from_parent = Parent(from, &from_name);
  const std::shared_ptr<Node> to_parent = Parent(to, &to_name);
  if (from_parent == nullptr || to_parent == nullptr || from_parent->names.count(from_name) == 0) {
    return NotFound("No '", from, "' to rename to '", to, "'");
  }
  const std::shared_ptr<Node> node = from_parent->names[from_name];
  const auto there = to_parent->names.find(to_name);
  if (there != to_parent->names.end() && (!node->folder || !there->second->names.empty())) {
    if (node->folder || there->second->folder) return FailedPrecondition("'", to, "' exists");
  }
  to_parent->names[to_name] = node;
  from_parent->names.erase(from_name);
  return OkStatus();
}

Status MemoryFiles::Remove(const std::string& path) {
  const MutexLock lock(mutex_);
  std::string name;
  const std::shared_ptr<Node> parent = Parent(path, &name);
  if (parent == nullptr || parent->names.count(name) == 0) return NotFound("No '", path, "' to remove");
  if (!parent->names[name]->names.empty()) return FailedPrecondition("'", path, "' is not empty");
  parent->names.erase(name);
  return OkStatus();
}

Status MemoryFiles::List(const std::string& path, std::vector<std::string>* names) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Node> node = Find(path);
  names->clear();
  if (node == nullptr || !node->folder) return NotFound("No folder '", path, "'");
  for (const auto& [name, child] : node->names) names->push_back(name);
  return OkStatus();
}

Status MemoryFiles::SyncFile(const std::string& path) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Node> node = Find(path);
  if (node == nullptr || node->folder) return NotFound("No file '", path, "'");
  node->synced_bytes = node->bytes;
  return OkStatus();
}

void MemoryFiles::RemoveAll() {
  const MutexLock lock(mutex_);
  root_->names.clear();
}

bool MemoryFiles::Exists(const std::string& path) {
  const MutexLock lock(mutex_);
  return Find(path) != nullptr;
}

void MemoryFiles::CutPower(uint64_t seed) {
  const MutexLock lock(mutex_);
  std::mt19937_64 random(seed);
  std::set<const Node*> done;
  CutPower(root_.get(), &random, &done);
}

void MemoryFiles::CutPower(Node* node, std::mt19937_64* random, std::set<const Node*>* done) {
  if (!done->insert(node).second) return;
  if (!node->folder) {
    // Bytes that were not synced may be written in part, and the file may already have its full size.
    if (node->bytes != node->synced_bytes && (*random)() % 2 == 0) {
      node->synced_bytes = node->bytes.substr(0, (*random)() % (node->bytes.size() + 1));
      if ((*random)() % 2 == 0) node->synced_bytes.resize(node->bytes.size());
    }
    node->bytes = node->synced_bytes;
    return;
  }
  std::set<std::string> names;
  for (const auto& entry : node->names) names.insert(entry.first);
  for (const auto& entry : node->synced_names) names.insert(entry.first);
  for (const std::string& name : names) {
    const auto now = node->names.find(name);
    const auto synced = node->synced_names.find(name);
    const auto now_node = now == node->names.end() ? nullptr : now->second;
    const auto synced_node = synced == node->synced_names.end() ? nullptr : synced->second;
    if (now_node == synced_node) continue;
    const auto survivor = (*random)() % 2 == 0 ? now_node : synced_node;
    if (survivor == nullptr) {
      node->synced_names.erase(name);
    } else {
      node->synced_names[name] = survivor;
    }
  }
  node->names = node->synced_names;
  for (const auto& entry : node->names) CutPower(entry.second.get(), random, done);
}

void MemoryFiles::Collect(const std::string& path, Node& node, std::map<std::string, std::string*>* all) {
  if (!node.folder) (*all)[path] = &node.bytes;
  for (const auto& [name, child] : node.names) Collect(path + "/" + name, *child, all);
}

std::map<std::string, std::string*> MemoryFiles::AllFiles() {
  const MutexLock lock(mutex_);
  std::map<std::string, std::string*> all;
  Collect("", *root_, &all);
  return all;
}

}  // namespace sok
