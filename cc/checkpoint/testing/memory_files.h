#ifndef SOK_CC_CHECKPOINT_TESTING_MEMORY_FILES_H_
#define SOK_CC_CHECKPOINT_TESTING_MEMORY_FILES_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
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

// For tests: counts the write operations on other files, or all reads, and makes one of them fail.
class FailingFiles final : public Files {
 public:
  enum class Mode {
    kDies,          // this operation and all later ones fail, as if the process had been killed
    kFailsOnce,     // only this operation fails
    kFailsOneRead,  // the same for reads of files
  };

  // Operation `fail_at`, counted from 0, fails with `code`; -1: none fails. A failing write writes half its
  // bytes.
  FailingFiles(Files* files, int64_t fail_at, Mode mode, StatusCode code = StatusCode::kInternal)
      : files_(files), fail_at_(fail_at), mode_(mode), code_(code) {}

  int64_t operations() const { return operations_; }
  bool failed() const { return failed_; }

  Status MakeFolder(const std::string& path, bool* made) override {
    SOK_RETURN_IF_ERROR(Count("make the folder", path));
    return files_->MakeFolder(path, made);
  }
  StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) override {
    SOK_RETURN_IF_ERROR(Count("create", path));
    SOK_ASSIGN_OR_RETURN(auto file, files_->Create(path));
    return std::unique_ptr<FileWriter>(std::make_unique<Writer>(this, path, std::move(file)));
  }
  StatusOr<std::unique_ptr<FileReader>> Open(const std::string& path) override {
    auto file = files_->Open(path);
    if (mode_ != Mode::kFailsOneRead || !file.ok()) return file;
    return std::unique_ptr<FileReader>(std::make_unique<Reader>(this, path, std::move(file.value())));
  }
  Status SyncFile(const std::string& path) override {
    SOK_RETURN_IF_ERROR(Count("sync", path));
    return files_->SyncFile(path);
  }
  Status SyncFolder(const std::string& path) override {
    SOK_RETURN_IF_ERROR(Count("sync", path));
    return files_->SyncFolder(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    SOK_RETURN_IF_ERROR(Count("rename", from));
    return files_->Rename(from, to);
  }
  Status Remove(const std::string& path) override {
    SOK_RETURN_IF_ERROR(Count("remove", path));
    return files_->Remove(path);
  }
  Status List(const std::string& path, std::vector<std::string>* names) override {
    return files_->List(path, names);
  }

 private:
  class Writer final : public FileWriter {
   public:
    Writer(FailingFiles* files, std::string path, std::unique_ptr<FileWriter> file)
        : files_(files), path_(std::move(path)), file_(std::move(file)) {}
    Status WriteAt(int64_t offset, const void* data, int64_t bytes) override {
      const bool died_before = files_->failed_;
      const Status status = files_->Count("write", path_);
      if (!status.ok()) {
        if (!died_before) SOK_RETURN_IF_ERROR(file_->WriteAt(offset, data, bytes / 2));
        return status;
      }
      return file_->WriteAt(offset, data, bytes);
    }
    Status Sync() override {
      SOK_RETURN_IF_ERROR(files_->Count("sync", path_));
      return file_->Sync();
    }

   private:
    FailingFiles* const files_;
    const std::string path_;
    const std::unique_ptr<FileWriter> file_;
  };

  class Reader final : public FileReader {
   public:
    Reader(FailingFiles* files, std::string path, std::unique_ptr<FileReader> file)
        : files_(files), path_(std::move(path)), file_(std::move(file)) {}
    int64_t size() const override { return file_->size(); }
    Status ReadAt(int64_t offset, void* data, int64_t bytes) override {
      SOK_RETURN_IF_ERROR(files_->Count("read", path_));
      return file_->ReadAt(offset, data, bytes);
    }

   private:
    FailingFiles* const files_;
    const std::string path_;
    const std::unique_ptr<FileReader> file_;
  };

  Status Count(const char* what, const std::string& path) {
    if (operations_++ == fail_at_ || (failed_ && mode_ == Mode::kDies)) {
      failed_ = true;
      return Status(code_, StrCat("Cannot ", what, " '", path, "': a failure for the test"));
    }
    return OkStatus();
  }

  Files* const files_;
  const int64_t fail_at_;
  const Mode mode_;
  const StatusCode code_;
  int64_t operations_ = 0;
  bool failed_ = false;
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TESTING_MEMORY_FILES_H_
