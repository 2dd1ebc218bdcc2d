#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cc/checkpoint/files.h"

namespace sok {
namespace {

// The error in errno.
Status FileError(const char* what, const std::string& path) {
  const int error = errno;
  const StatusCode code = error == ENOENT || error == ENOTDIR  ? StatusCode::kNotFound
                          : error == ENOSPC || error == EDQUOT ? StatusCode::kResourceExhausted
                                                               : StatusCode::kInternal;
  return Status(code, StrCat("Cannot ", what, " '", path, "': ", std::strerror(error)));
}

// A file descriptor and the path that errors name.
class Descriptor {
 public:
  Descriptor(std::string path, int number) : path_(std::move(path)), number_(number) {}
  ~Descriptor() { close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const int number_;
};

class PosixWriter final : public FileWriter {
 public:
  PosixWriter(std::string path, int number) : file_(std::move(path), number) {}

  Status Write(const void* data, int64_t bytes) override {
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = write(file_.number(), next, static_cast<size_t>(bytes));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return FileError("write", file_.path());
      next += written;
      bytes -= written;
    }
    return OkStatus();
  }
  Status Sync() override { return fsync(file_.number()) == 0 ? OkStatus() : FileError("sync", file_.path()); }

 private:
  const Descriptor file_;
};

class PosixReader final : public FileReader {
 public:
  PosixReader(std::string path, int number, int64_t size) : file_(std::move(path), number), size_(size) {}

  int64_t size() const override { return size_; }
  Status Read(void* data, int64_t bytes) override {
    char* next = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t count = read(file_.number(), next, static_cast<size_t>(bytes));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return FileError("read", file_.path());
      if (count == 0) return DataLoss("'", file_.path(), "' ended early");
      next += count;
      bytes -= count;
    }
    return OkStatus();
  }

 private:
  const Descriptor file_;
  const int64_t size_;
};

class PosixFileSystem final : public Files {
 public:
  Status MakeFolder(const std::string& path) override {
    if (mkdir(path.c_str(), 0777) == 0 || (errno == EEXIST && IsFolder(path))) return OkStatus();
    return FileError("make the folder", path);
  }

  StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) override {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) return FileError("create", path);
    return std::unique_ptr<FileWriter>(std::make_unique<PosixWriter>(path, file));
  }

  StatusOr<std::unique_ptr<FileReader>> Open(const std::string& path) override {
    // A pipe where a file should be must not block.
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return FileError("open", path);
    struct stat facts;
    const bool known = fstat(file, &facts) == 0;
    if (!known || !S_ISREG(facts.st_mode)) {
      const Status status = known ? DataLoss("'", path, "' is no file") : FileError("open", path);
      close(file);
      return status;
    }
    return std::unique_ptr<FileReader>(std::make_unique<PosixReader>(path, file, facts.st_size));
  }

  Status SyncFolder(const std::string& path) override {
    const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return FileError("open", path);
    const Descriptor closes(path, folder);
    return fsync(folder) == 0 ? OkStatus() : FileError("sync", path);
  }

  Status Rename(const std::string& from, const std::string& to) override {
    return std::rename(from.c_str(), to.c_str()) == 0 ? OkStatus() : FileError("rename to", to);
  }

  Status Remove(const std::string& path) override {
    return std::remove(path.c_str()) == 0 ? OkStatus() : FileError("remove", path);
  }

  Status List(const std::string& path, std::vector<std::string>* names) override {
    names->clear();
    DIR* folder = opendir(path.c_str());
    if (folder == nullptr) return FileError("list", path);
    while (const dirent* entry = readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names->push_back(name);
    }
    closedir(folder);
    std::sort(names->begin(), names->end());
    return OkStatus();
  }

  bool IsFolder(const std::string& path) override {
    struct stat facts;
    return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
  }
};

}  // namespace

Files& PosixFiles() {
  static PosixFileSystem files;
  return files;
}

}  // namespace sok
