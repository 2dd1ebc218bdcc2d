#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "cc/checkpoint/file_error.h"
#include "cc/checkpoint/files.h"

namespace sok {
namespace {

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

constexpr char kOwnFolder[] = ".sok";

// The position of the part of a path that a checkpoint owns: that of the last component that ends with
// ".sok", or if there is none, that of the last component.
size_t OwnPart(const std::string& path, bool* owned) {
  const size_t length = sizeof(kOwnFolder) - 1;
  for (size_t end = path.size(); end != std::string::npos && end > 0; end = path.rfind('/', end - 1)) {
    if (end < length || path.compare(end - length, length, kOwnFolder) != 0) continue;
    *owned = true;
    const size_t slash = path.rfind('/', end - 1);
    return slash == std::string::npos ? 0 : slash + 1;
  }
  *owned = false;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? 0 : slash + 1;
}

bool IsLink(int folder, const std::string& name) {
  struct stat facts;
  return fstatat(folder, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(facts.st_mode);
}

// The last component of a path, and an open descriptor of its parent folder. Follows only the user's links on
// the way there.
class Place {
 public:
  // InvalidArgument for an invalid path: c_str() would end it at a zero byte.
  static StatusOr<std::unique_ptr<Place>> Of(const char* what, const std::string& given) {
    SOK_RETURN_IF_ERROR(CheckPath(given));
    std::string path = given;
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    bool owned = false;
    size_t begin = OwnPart(path, &owned);
    const std::string user = begin == 0 ? "." : path.substr(0, begin);
    int folder = open(user.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return FileError(what, given);
    auto place = std::make_unique<Place>(given, owned, folder);
    for (size_t slash = path.find('/', begin); slash != std::string::npos; slash = path.find('/', begin)) {
      const std::string part = path.substr(begin, slash - begin);
      begin = slash + 1;
      if (part.empty()) continue;
      folder = openat(place->folder(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (folder < 0) {
        const Status error = FileError(what, given);
        return IsLink(place->folder(), part) ? LinkError(path.substr(0, slash)) : error;
      }
      place->folder_ = std::make_unique<Descriptor>(given, folder);
    }
    place->name_ = begin < path.size() ? path.substr(begin) : ".";
    return place;
  }

  Place(std::string path, bool owned, int folder)
      : path_(std::move(path)), owned_(owned), folder_(std::make_unique<Descriptor>(path_, folder)) {}

  // The arguments of openat() and similar calls.
  int folder() const { return folder_->number(); }
  const char* name() const { return name_.c_str(); }
  // The flags that keep openat() and fstatat() from following a link that a checkpoint owns.
  int open_flag() const { return owned_ ? O_NOFOLLOW : 0; }
  int stat_flag() const { return owned_ ? AT_SYMLINK_NOFOLLOW : 0; }

  // The error in errno, or LinkError if there is a link that was not followed. Keeps errno.
  Status Error(const char* what, bool followed = false) const {
    const int number = errno;
    const Status error = FileError(what, path_);
    const bool link = (owned_ || !followed) && IsLink(folder(), name_);
    errno = number;
    return link ? LinkError(path_) : error;
  }

 private:
  static Status LinkError(const std::string& path) {
    return FailedPrecondition("'", path,
                              "' is a symbolic link: a checkpoint's own folders and files are never links");
  }

  const std::string path_;
  const bool owned_;
  std::unique_ptr<Descriptor> folder_;
  std::string name_;
};

// Bytes of a file that are handed to the disk at a time, and that may be in transfer.
constexpr int64_t kStretch = int64_t{1} << 20;
constexpr int64_t kUnderWay = 8 * kStretch;
// Bytes of a file that stay in the page cache after they were read.
constexpr int64_t kReadBehind = 32 * kStretch;

// Starts to write data to the disk while the caller makes more, and drops written data from the page cache.
// Left to the kernel, a checkpoint would fill the page cache with its whole size and displace other files. On
// virtual machines, where new pages of memory are expensive, that takes several times as long as the disk.
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
    // The kernel reports an error of the disk only once, so return it here: Sync() would not see it.
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
  bool can_hand_over_ = true;  // false if the file system does not support sync_file_range
};

// Drops data from the page cache after reading, as PosixWriter does; not at once, because other ranks may be
// reading the same file.
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
    const auto place = Place::Of("make the folder", path);
    SOK_RETURN_IF_ERROR(place.status());
    const Place& at = *place.value();
    if (mkdirat(at.folder(), at.name(), 0777) == 0) return OkStatus();
    const Status error = at.Error("make the folder", true);
    return errno == EEXIST && IsFolderAt(at) ? OkStatus() : error;
  }

  StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) override {
    const auto place = Place::Of("create", path);
    SOK_RETURN_IF_ERROR(place.status());
    const Place& at = *place.value();
    const int file =
        openat(at.folder(), at.name(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0) return at.Error("create");
    return std::unique_ptr<FileWriter>(std::make_unique<PosixWriter>(path, file));
  }

  StatusOr<std::unique_ptr<FileReader>> Open(const std::string& path) override {
    const auto place = Place::Of("open", path);
    SOK_RETURN_IF_ERROR(place.status());
    const Place& at = *place.value();
    // O_NONBLOCK: a pipe in place of the file must not block.
    const int file = openat(at.folder(), at.name(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return at.Error("open");
    struct stat facts;
    const bool known = fstat(file, &facts) == 0;
    if (!known || !S_ISREG(facts.st_mode)) {
      const Status status = known ? DataLoss("'", path, "' is not a file") : FileError("open", path);
      close(file);
      return status;
    }
    return std::unique_ptr<FileReader>(std::make_unique<PosixReader>(path, file, facts.st_size));
  }

  Status SyncFolder(const std::string& path) override {
    const auto place = Place::Of("open", path);
    SOK_RETURN_IF_ERROR(place.status());
    const Place& at = *place.value();
    const int folder = openat(at.folder(), at.name(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | at.open_flag());
    if (folder < 0) return at.Error("open", true);
    const Descriptor closes(path, folder);
    return fsync(folder) == 0 ? OkStatus() : FileError("sync", path);
  }

  Status Rename(const std::string& from, const std::string& to) override {
    const auto source = Place::Of("rename", from);
    SOK_RETURN_IF_ERROR(source.status());
    const auto target = Place::Of("rename to", to);
    SOK_RETURN_IF_ERROR(target.status());
    const bool renamed = renameat(source.value()->folder(), source.value()->name(), target.value()->folder(),
                                  target.value()->name()) == 0;
    return renamed ? OkStatus() : target.value()->Error("rename to");
  }

  Status Remove(const std::string& path) override {
    const auto place = Place::Of("remove", path);
    SOK_RETURN_IF_ERROR(place.status());
    const Place& at = *place.value();
    if (unlinkat(at.folder(), at.name(), 0) == 0) return OkStatus();
    const bool folder = errno == EISDIR || errno == EPERM;  // POSIX and Linux differ
    if (folder && unlinkat(at.folder(), at.name(), AT_REMOVEDIR) == 0) return OkStatus();
    return FileError("remove", path);
  }

  Status List(const std::string& path, std::vector<std::string>* names) override {
    names->clear();
    const auto place = Place::Of("list", path);
    SOK_RETURN_IF_ERROR(place.status());
    const Place& at = *place.value();
    const int number = openat(at.folder(), at.name(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (number < 0) return at.Error("list");
    DIR* folder = fdopendir(number);
    if (folder == nullptr) {
      const Status error = FileError("list", path);
      close(number);
      return error;
    }
    while (const dirent* entry = readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names->push_back(name);
    }
    closedir(folder);
    std::sort(names->begin(), names->end());
    return OkStatus();
  }

  bool IsFolder(const std::string& path) override {
    const auto place = Place::Of("look at", path);
    return place.ok() && IsFolderAt(*place.value());
  }

 private:
  static bool IsFolderAt(const Place& at) {
    struct stat facts;
    return fstatat(at.folder(), at.name(), &facts, at.stat_flag()) == 0 && S_ISDIR(facts.st_mode);
  }
};

}  // namespace

Files& PosixFiles() {
  static PosixFileSystem files;
  return files;
}

}  // namespace sok
