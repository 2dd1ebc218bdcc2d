#include "cc/checkpoint/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <mutex>
#include <utility>

#include "cc/base/mutex.h"
#include "cc/base/printable.h"
#include "cc/checkpoint/direct_reads.h"

namespace sok {
namespace {

// An open file, and the path that errors name.
class Descriptor {
 public:
  // Not open yet. Memory that runs out afterwards leaves no file open.
  explicit Descriptor(std::string path) : path_(std::move(path)) {}
  Descriptor(Descriptor&& other) noexcept
      : path_(std::move(other.path_)), number_(std::exchange(other.number_, -1)) {}
  // What was synced is on the disk whatever close() returns.
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool Open(int flags) {
    number_ = open(path_.c_str(), flags | O_CLOEXEC, 0666);
    return number_ >= 0;
  }
  void Release() { number_ = -1; }
  int number() const { return number_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int number_ = -1;
};

// Bytes that are written or read at once, and more, are handed to the disk, or dropped from the page cache,
// when as many are under way or were read since.
constexpr int64_t kStretch = int64_t{1} << 20;
constexpr size_t kStretchesUnderWay = 16;
constexpr size_t kStretchesBehind = 32;

struct Range {
  int64_t begin = 0;
  int64_t bytes = 0;
};

// Starts to write data to the disk while the caller makes more, and drops written data from the page cache.
// Left to the kernel, a checkpoint would fill the page cache with its whole size and displace other files. On
// virtual machines, where new pages of memory are expensive, that takes several times as long as the disk.
class PosixWriter final : public FileWriter {
 public:
  explicit PosixWriter(Descriptor file) : file_(std::move(file)) {}

  Status WriteAt(int64_t offset, const void* data, int64_t bytes) override {
    const Range range{offset, bytes};
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = pwrite(file_.number(), next, static_cast<size_t>(bytes), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return FileError("write", file_.path());
      next += written;
      bytes -= written;
      offset += written;
    }
    return range.bytes < kStretch ? Collect(range) : HandOver(range);
  }
  Status Sync() override { return fsync(file_.number()) == 0 ? OkStatus() : FileError("sync", file_.path()); }

 private:
  // Small ranges are handed to the disk together, and stay in the page cache.
  Status Collect(const Range& range) {
    Range together;
    {
      const MutexLock lock(mutex_);
      if (small_bytes_ == 0) small_ = range;
      const int64_t end = std::max(small_.begin + small_.bytes, range.begin + range.bytes);
      small_.begin = std::min(small_.begin, range.begin);
      small_.bytes = end - small_.begin;
      small_bytes_ += range.bytes;
      if (small_bytes_ < kStretch) return OkStatus();
      small_bytes_ = 0;
      together = small_;
    }
    return Start(together, SYNC_FILE_RANGE_WRITE);
  }
  Status HandOver(const Range& range) {
    SOK_RETURN_IF_ERROR(Start(range, SYNC_FILE_RANGE_WRITE));
    Range oldest;
    {
      const MutexLock lock(mutex_);
      under_way_.push_back(range);
      if (under_way_.size() <= kStretchesUnderWay) return OkStatus();
      oldest = under_way_.front();
      under_way_.pop_front();
    }
    SOK_RETURN_IF_ERROR(
        Start(oldest, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
    posix_fadvise(file_.number(), oldest.begin, oldest.bytes, POSIX_FADV_DONTNEED);
    return OkStatus();
  }
  Status Start(const Range& range, unsigned int flags) const {
    if (sync_file_range(file_.number(), range.begin, range.bytes, flags) == 0) return OkStatus();
    // The kernel reports an error of the disk only once, so return it here: Sync() would not see it. Other
    // errors mean that the file system cannot do this.
    const bool of_disk = errno == EIO || errno == ENOSPC || errno == EDQUOT;
    return of_disk ? FileError("write", file_.path()) : OkStatus();
  }

  const Descriptor file_;
  Mutex mutex_;
  std::deque<Range> under_way_ SOK_GUARDED_BY(mutex_);
  Range small_ SOK_GUARDED_BY(mutex_);              // around those that were not handed over
  int64_t small_bytes_ SOK_GUARDED_BY(mutex_) = 0;  // of them
};

// Reads ahead past the page cache, where that is possible. Drops other data from it after reading, as
// PosixWriter does; not at once, because other ranks may be reading the same file.
class PosixReader final : public FileReader {
 public:
  PosixReader(Descriptor file, int64_t size) : file_(std::move(file)), size_(size) {}
  ~PosixReader() override {
    if (map_ != nullptr) munmap(map_, size_);
  }

  int64_t size() const override { return size_; }
  Status ReadAt(int64_t offset, void* data, int64_t bytes) override {
    DirectReads* const direct = direct_reads_.load();
    if (direct != nullptr && direct->Take(offset, bytes, data)) return OkStatus();
    const Range range{offset, bytes};
    char* next = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t count = pread(file_.number(), next, static_cast<size_t>(bytes), offset);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return FileError("read", file_.path());
      if (count == 0) return DataLoss("'", file_.path(), "' ended early");
      next += count;
      bytes -= count;
      offset += count;
    }
    if (range.bytes >= kStretch && !keeps_cached_) DropOldest(range);
    return OkStatus();
  }

  Status MapAt(int64_t offset, void* data, int64_t bytes) override {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const bool fits =
        offset % page == 0 && reinterpret_cast<uintptr_t>(data) % page == 0 && bytes <= size_ - offset;
    // What follows in the last page is not of these bytes, so they are read.
    int64_t whole = fits ? bytes / page * page : 0;
    // Not all file systems can map, and the number of maps is limited.
    if (whole > 0 && !MapOver(offset, data, whole)) whole = 0;
    return ReadAt(offset + whole, static_cast<char*>(data) + whole, bytes - whole);
  }

  void KeepCached() override { keeps_cached_ = true; }

  void ReadAhead(int64_t offset, int64_t bytes) override {
    bytes = std::min(bytes, size_ - offset);
    if (bytes <= 0) return;
    if (bytes >= kLeastDirect && !keeps_cached_) {
      std::call_once(made_direct_reads_, [this] { MakeDirectReads(); });
      DirectReads* const direct = direct_reads_.load();
      if (direct != nullptr && !IsCached(offset, bytes) && direct->Start(offset, bytes)) return;
    }
    posix_fadvise(file_.number(), offset, bytes, POSIX_FADV_WILLNEED);
  }

 private:
  // Less is not worth the calls.
  static constexpr int64_t kLeastDirect = kStretch / 4;

  void MakeDirectReads() {
    void* const map = mmap(nullptr, size_, PROT_NONE, MAP_SHARED, file_.number(), 0);
    if (map == MAP_FAILED) return;
    map_ = map;
    made_ = DirectReads::Create(file_.number());
    direct_reads_ = made_.get();
  }

  // Whether the page cache has all of these bytes, so that the disk need not be asked. Yes, if the system
  // does not say that.
  bool IsCached(int64_t offset, int64_t bytes) const {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t begin = offset / page * page;
    std::vector<unsigned char> pages((offset + bytes - begin + page - 1) / page);
    if (mincore(static_cast<char*>(map_) + begin, offset + bytes - begin, pages.data()) != 0) return true;
    return std::all_of(pages.begin(), pages.end(), [](unsigned char one) { return (one & 1) != 0; });
  }

  // False if it is impossible. In two steps, because mmap may free the memory at a fixed place, and then
  // fail.
  bool MapOver(int64_t offset, void* data, int64_t bytes) const {
    void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file_.number(), offset);
    if (pages == MAP_FAILED) return false;
    if (mremap(pages, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, data) != MAP_FAILED) return true;
    munmap(pages, bytes);
    return false;
  }

  void DropOldest(const Range& range) {
    Range oldest;
    {
      const MutexLock lock(mutex_);
      behind_.push_back(range);
      if (behind_.size() <= kStretchesBehind) return;
      oldest = behind_.front();
      behind_.pop_front();
    }
    posix_fadvise(file_.number(), oldest.begin, oldest.bytes, POSIX_FADV_DONTNEED);
  }

  const Descriptor file_;
  const int64_t size_;
  std::atomic<bool> keeps_cached_{false};
  std::once_flag made_direct_reads_;
  std::unique_ptr<DirectReads> made_;
  std::atomic<DirectReads*> direct_reads_{nullptr};
  void* map_ = nullptr;  // of the file, to ask what the page cache has
  Mutex mutex_;
  std::deque<Range> behind_ SOK_GUARDED_BY(mutex_);
};

class PosixFileSystem final : public Files {
 public:
  Status MakeFolder(const std::string& path, bool* made) override {
    SOK_RETURN_IF_ERROR(CheckPath(path));
    *made = mkdir(path.c_str(), 0777) == 0;
    if (*made) return OkStatus();
    const Status error = FileError("make the folder", path);
    struct stat facts;
    if (errno == EEXIST && stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) return OkStatus();
    return error;
  }

  StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) override {
    SOK_ASSIGN_OR_RETURN(auto file, OpenAs("create", path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW));
    return std::unique_ptr<FileWriter>(std::make_unique<PosixWriter>(std::move(file)));
  }

  StatusOr<std::unique_ptr<FileReader>> Open(const std::string& path) override {
    // O_NONBLOCK: a pipe in place of the file must not block.
    SOK_ASSIGN_OR_RETURN(auto file, OpenAs("open", path, O_RDONLY | O_NONBLOCK));
    struct stat facts;
    if (fstat(file.number(), &facts) != 0) return FileError("open", path);
    if (!S_ISREG(facts.st_mode)) return DataLoss("'", path, "' is not a file");
    return std::unique_ptr<FileReader>(std::make_unique<PosixReader>(std::move(file), facts.st_size));
  }

  Status RefuseLink(const std::string& path) override {
    SOK_RETURN_IF_ERROR(CheckPath(path));
    struct stat facts;
    if (lstat(path.c_str(), &facts) != 0) return errno == ENOENT ? OkStatus() : FileError("ask about", path);
    if (!S_ISLNK(facts.st_mode)) return OkStatus();
    return DataLoss("'", path, "' is a symbolic link, which is not followed in checkpoints of other systems");
  }

  Status SyncFile(const std::string& path) override { return SyncAs(path, O_RDONLY | O_NONBLOCK); }
  Status SyncFolder(const std::string& path) override { return SyncAs(path, O_RDONLY | O_DIRECTORY); }

  Status Rename(const std::string& from, const std::string& to) override {
    SOK_RETURN_IF_ERROR(CheckPath(from));
    SOK_RETURN_IF_ERROR(CheckPath(to));
    return rename(from.c_str(), to.c_str()) == 0 ? OkStatus() : FileError("rename to", to);
  }

  Status Remove(const std::string& path) override {
    SOK_RETURN_IF_ERROR(CheckPath(path));
    if (unlink(path.c_str()) == 0) return OkStatus();
    const bool folder = errno == EISDIR || errno == EPERM;  // POSIX and Linux differ
    if (folder && rmdir(path.c_str()) == 0) return OkStatus();
    return FileError("remove", path);
  }

  Status List(const std::string& path, std::vector<std::string>* names) override {
    names->clear();
    SOK_ASSIGN_OR_RETURN(auto opened, OpenAs("list", path, O_RDONLY | O_DIRECTORY));
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(opened.number()), closedir);
    if (folder == nullptr) return FileError("list", path);
    opened.Release();  // closedir() closes it
    errno = 0;
    while (const dirent* entry = readdir(folder.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names->push_back(name);
      errno = 0;
    }
    if (errno != 0) return FileError("list", path);
    std::sort(names->begin(), names->end());
    return OkStatus();
  }

 private:
  static StatusOr<Descriptor> OpenAs(const char* what, const std::string& path, int flags) {
    SOK_RETURN_IF_ERROR(CheckPath(path));
    Descriptor file(path);
    if (!file.Open(flags)) return FileError(what, path);
    return StatusOr<Descriptor>(std::move(file));
  }
  static Status SyncAs(const std::string& path, int flags) {
    SOK_ASSIGN_OR_RETURN(const auto file, OpenAs("open", path, flags));
    return fsync(file.number()) == 0 ? OkStatus() : FileError("sync", path);
  }
};

}  // namespace

Files& PosixFiles() {
  static PosixFileSystem files;
  return files;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status MakeFolders(Files& files, const std::string& path) {
  bool made = false;
  const Status status = files.MakeFolder(path, &made);
  const std::string parent = FolderOf(path);
  if (status.code() == StatusCode::kNotFound && parent != path) {
    SOK_RETURN_IF_ERROR(MakeFolders(files, parent));
    SOK_RETURN_IF_ERROR(files.MakeFolder(path, &made));
  } else if (!status.ok()) {
    return status;
  }
  return made ? files.SyncFolder(parent) : OkStatus();
}

Status ReadWholeFile(Files& files, const std::string& path, int64_t limit, std::string* bytes) {
  SOK_ASSIGN_OR_RETURN(auto file, files.Open(path));
  const int64_t size = file->size();
  if (size > limit) return DataLoss("'", path, "' has ", size, " bytes, more than such a file can have");
  bytes->resize(static_cast<size_t>(size));
  return file->ReadAt(0, bytes->data(), size);
}

Status WriteWholeFile(Files& files, const std::string& path, const std::string& bytes) {
  SOK_ASSIGN_OR_RETURN(auto file, files.Create(path));
  SOK_RETURN_IF_ERROR(file->WriteAt(0, bytes.data(), static_cast<int64_t>(bytes.size())));
  return file->Sync();
}

}  // namespace sok
