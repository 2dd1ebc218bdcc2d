#include "cc/checkpoint/raw_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace sok {
namespace {

namespace fs = std::filesystem;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "raw files are little-endian, and written as memory is");

Status FileError(const std::string& what, const std::string& path) {
  const int error = errno;
  const StatusCode code = error == ENOENT                      ? StatusCode::kNotFound
                          : error == ENOSPC || error == EDQUOT ? StatusCode::kResourceExhausted
                                                               : StatusCode::kInternal;
  return Status(code, StrCat("Cannot ", what, " '", path, "': ", std::strerror(error)));
}

// The name of a file until it is complete.
std::string Unfinished(const std::string& path) { return path + ".unfinished"; }

class OpenFile {
 public:
  OpenFile(std::string path, int flags) : path_(std::move(path)), file_(open(path_.c_str(), flags, 0666)) {}
  ~OpenFile() {
    if (file_ >= 0) close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  Status opened() const { return file_ < 0 ? FileError("write", path_) : OkStatus(); }
  Status Resize(int64_t bytes) {
    return ftruncate(file_, bytes) == 0 ? OkStatus() : FileError("write", path_);
  }
  Status Sync() { return fsync(file_) == 0 ? OkStatus() : FileError("write", path_); }

  Status WriteAt(int64_t position, const void* data, int64_t bytes) {
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = pwrite(file_, next, bytes, position);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return FileError("write", path_);
      next += written;
      position += written;
      bytes -= written;
    }
    return OkStatus();
  }

 private:
  const std::string path_;
  const int file_;
};

// Rows that are copied together before they are written.
constexpr int64_t kBufferFloats = 1 << 18;

// A rename lasts only once its directory is on the disk.
Status SyncDirectory(const std::string& path) {
  const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY);
  if (directory < 0) return FileError("open", path);
  const Status status = fsync(directory) == 0 ? OkStatus() : FileError("sync", path);
  close(directory);
  return status;
}

Status SizeOf(const std::string& path, int64_t* bytes) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) {
    errno = error.value();
    return FileError("read", path);
  }
  *bytes = static_cast<int64_t>(size);
  return OkStatus();
}

}  // namespace

std::string RawKeysPath(const std::string& directory, const std::string& name) {
  return (fs::path(directory) / (name + "_keys.file")).string();
}

std::string RawValuesPath(const std::string& directory, const std::string& name) {
  return (fs::path(directory) / (name + "_values.file")).string();
}

RawFilesWriter::RawFilesWriter(const std::string& directory, const std::string& name, int64_t rows,
                               int64_t dim)
    : keys_path_(RawKeysPath(directory, name)),
      values_path_(RawValuesPath(directory, name)),
      rows_(rows),
      dim_(dim) {}

Status RawFilesWriter::Begin() const {
  // A variable made in a name scope has a name with slashes.
  const std::string parent = fs::path(keys_path_).parent_path().string();
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) {
    errno = error.value();
    return FileError("make the directory", parent);
  }
  const std::pair<const std::string&, int64_t> files[] = {{keys_path_, rows_ * 8},
                                                          {values_path_, rows_ * dim_ * 4}};
  for (const auto& [path, bytes] : files) {
    OpenFile file(Unfinished(path), O_WRONLY | O_CREAT | O_TRUNC);
    SOK_RETURN_IF_ERROR(file.opened());
    SOK_RETURN_IF_ERROR(file.Resize(bytes));
  }
  return SyncDirectory(parent);
}

Status RawFilesWriter::Write(int64_t first, Span<const int64_t> keys,
                             FunctionRef<const float*(int64_t row)> weights) const {
  OpenFile keys_file(Unfinished(keys_path_), O_WRONLY);
  OpenFile values_file(Unfinished(values_path_), O_WRONLY);
  SOK_RETURN_IF_ERROR(keys_file.opened());
  SOK_RETURN_IF_ERROR(values_file.opened());
  SOK_RETURN_IF_ERROR(keys_file.WriteAt(first * 8, keys.data(), keys.size() * 8));
  const int64_t rows_at_once = std::max<int64_t>(1, kBufferFloats / dim_);
  std::vector<float> buffer(std::min(rows_at_once, keys.size()) * dim_);
  for (int64_t row = 0; row < keys.size(); row += rows_at_once) {
    const int64_t count = std::min(rows_at_once, keys.size() - row);
    for (int64_t i = 0; i < count; ++i) std::copy_n(weights(row + i), dim_, buffer.data() + i * dim_);
    SOK_RETURN_IF_ERROR(values_file.WriteAt((first + row) * dim_ * 4, buffer.data(), count * dim_ * 4));
  }
  SOK_RETURN_IF_ERROR(keys_file.Sync());
  return values_file.Sync();
}

Status RawFilesWriter::Publish() const {
  for (const std::string& path : {values_path_, keys_path_}) {
    if (std::rename(Unfinished(path).c_str(), path.c_str()) != 0) return FileError("rename to", path);
  }
  return SyncDirectory(fs::path(keys_path_).parent_path().string());
}

void RawFilesWriter::Abandon() const {
  std::remove(Unfinished(keys_path_).c_str());
  std::remove(Unfinished(values_path_).c_str());
}

StatusOr<RawFilesReader> RawFilesReader::Open(const std::string& directory, const std::string& name,
                                              int64_t dim) {
  RawFilesReader reader;
  reader.keys_path_ = RawKeysPath(directory, name);
  reader.values_path_ = RawValuesPath(directory, name);
  int64_t keys_bytes = 0;
  int64_t values_bytes = 0;
  SOK_RETURN_IF_ERROR(SizeOf(reader.keys_path_, &keys_bytes));
  SOK_RETURN_IF_ERROR(SizeOf(reader.values_path_, &values_bytes));
  constexpr int64_t kKeyBytes = sizeof(int64_t);
  const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(float));
  if (keys_bytes % kKeyBytes != 0) {
    return DataLoss("'", reader.keys_path_, "' has ", keys_bytes, " bytes, no whole number of 8-byte keys");
  }
  reader.num_rows_ = keys_bytes / kKeyBytes;
  if (values_bytes % row_bytes != 0 || values_bytes / row_bytes != reader.num_rows_) {
    return DataLoss("'", reader.values_path_, "' has ", values_bytes, " bytes, but ", reader.num_rows_,
                    " keys with rows of ", dim, " floats need ", reader.num_rows_ * row_bytes);
  }
  reader.keys_file_.reset(std::fopen(reader.keys_path_.c_str(), "rb"));
  if (reader.keys_file_ == nullptr) return FileError("read", reader.keys_path_);
  reader.values_file_.reset(std::fopen(reader.values_path_.c_str(), "rb"));
  if (reader.values_file_ == nullptr) return FileError("read", reader.values_path_);
  return reader;
}

Status RawFilesReader::ReadKeys(std::vector<int64_t>* keys) {
  keys->resize(num_rows_);
  if (std::fread(keys->data(), sizeof(int64_t), num_rows_, keys_file_.get()) != keys->size()) {
    return DataLoss("'", keys_path_, "' ended early");
  }
  std::vector<int64_t> sorted(*keys);
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return DataLoss("'", keys_path_, "' has the key ", *twice, " twice");
  return OkStatus();
}

Status RawFilesReader::ReadValues(Span<float> values) {
  const size_t read = std::fread(values.data(), sizeof(float), values.size(), values_file_.get());
  return static_cast<int64_t>(read) == values.size() ? OkStatus()
                                                     : DataLoss("'", values_path_, "' ended early");
}

}  // namespace sok
