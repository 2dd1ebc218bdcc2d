#ifndef SOK_CC_CHECKPOINT_TESTING_MEMORY_FILES_H_
#define SOK_CC_CHECKPOINT_TESTING_MEMORY_FILES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/thread_annotations.h"
#include "cc/checkpoint/files.h"

namespace sok {

// For tests: a disk in memory, on which the power can be cut. Beside the current state it keeps the state
// that is certain to survive: the bytes of a file at its last Sync, the names in a folder at its last
// SyncFolder.
//
// Names are absolute paths below "/", which exists. Thread-safe.
class MemoryFiles final : public Files {
 public:
  MemoryFiles();

  Status MakeFolder(const std::string& path, bool* made) override;
  StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) override;
  StatusOr<std::unique_ptr<FileReader>> Open(const std::string& path) override;
  Status SyncFile(const std::string& path) override;
  Status SyncFolder(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status List(const std::string& path, std::vector<std::string>* names) override;

  // Cuts the power: each change that was not synced survives or is lost, at random.
  void CutPower(uint64_t seed);

  // All files, with their bytes, which may be changed.
  std::map<std::string, std::string*> AllFiles();
  bool Exists(const std::string& path);
  void RemoveAll();
  // The offsets of all ReadAhead, in order.
  std::vector<int64_t> ReadAheads() const {
    const MutexLock lock(mutex_);
    return read_aheads_;
  }

 private:
  struct Node {
    bool folder = false;
    std::string bytes;
    std::string synced_bytes;
    std::map<std::string, std::shared_ptr<Node>> names;
    std::map<std::string, std::shared_ptr<Node>> synced_names;
  };
  class Writer;
  class Reader;

  // Null if there is none.
  std::shared_ptr<Node> Find(const std::string& path) const SOK_REQUIRES(mutex_);
  // The parent folder of the path, and its name there.
  std::shared_ptr<Node> Parent(const std::string& path, std::string* name) const SOK_REQUIRES(mutex_);
  void Collect(const std::string& path, Node& node, std::map<std::string, std::string*>* all);
  void CutPower(Node* node, std::mt19937_64* random, std::set<const Node*>* done);

  mutable Mutex mutex_;
  std::vector<int64_t> read_aheads_ SOK_GUARDED_BY(mutex_);
  const std::shared_ptr<Node> root_ SOK_GUARDED_BY(mutex_);
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TESTING_MEMORY_FILES_H_
