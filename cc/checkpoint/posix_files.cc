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

// How much of a file is handed to the disk at a time, and how much of it may be under way.
constexpr int64_t kStretch = int64_t{1} << 20;
constexpr int64_t kUnderWay = 8 * kStretch;
// How much of a file stays in the page cache after it was read.
constexpr int64_t kReadBehind = 32 * kStretch;

// What was written goes to the disk while more is being made, and leaves the page cache once it is there.
// Left to the kernel, a checkpoint takes as much memory as it is long, from what other files have cached; on
// virtual machines, where each new page of memory costs, that takes several times as long as the disk does.
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
      written_ += written;
    }
    for (; written_ - handed_over_ >= kStretch; handed_over_ += kStretch) {
      SOK_RETURN_IF_ERROR(HandOver(handed_over_, SYNC_FILE_RANGE_WRITE));
      if (handed_over_ >= kUnderWay) SOK_RETURN_IF_ERROR(Drop(handed_over_ - kUnderWay));
    }
    return OkStatus();
  }
  Status Sync() override { return fsync(file_.number()) == 0 ? OkStatus() : FileError("sync", file_.path()); }

 private:
  Status HandOver(int64_t begin, unsigned int flags) {
    if (!can_hand_over_ || sync_file_range(file_.number(), begin, kStretch, flags) == 0) return OkStatus();
    // The kernel tells of an error of the disk once: it must not get lost before Sync().
    if (errno == EIO || errno == ENOSPC || errno == EDQUOT) return FileError("write", file_.path());
    can_hand_over_ = false;
    return OkStatus();
  }
  Status Drop(int64_t begin) {
    SOK_RETURN_IF_ERROR(
        HandOver(begin, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
    if (can_hand_over_) posix_fadvise(file_.number(), begin, kStretch, POSIX_FADV_DONTNEED);
    return OkStatus();
  }

  const Descriptor file_;
  int64_t written_ = 0;
  int64_t handed_over_ = 0;    // bytes from the start, whole stretches
  bool can_hand_over_ = true;  // not all file systems know how
};

// What was read leaves the page cache, as above; not at once, as other ranks may be reading the same file.
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
      read_ += count;
    }
    for (; read_ - dropped_ >= kReadBehind + kStretch; dropped_ += kStretch) {
      posix_fadvise(file_.number(), dropped_, kStretch, POSIX_FADV_DONTNEED);
    }
    return OkStatus();
  }

 private:
  const Descriptor file_;
  const int64_t size_;
  int64_t read_ = 0;
  int64_t dropped_ = 0;  // bytes from the start, whole stretches
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
