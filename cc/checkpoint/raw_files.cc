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

// A file that gets its name only when it is complete: written beside it, synced, then renamed by Publish.
// Without Publish it leaves nothing behind.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)), temporary_(StrCat(path_, ".tmp.", getpid())) {
    file_ = std::fopen(temporary_.c_str(), "wb");
  }
  ~NewFile() {
    if (file_ != nullptr) std::fclose(file_);
    if (!published_) std::remove(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  Status opened() const { return file_ == nullptr ? FileError("write", temporary_) : OkStatus(); }

  Status Write(const void* data, size_t bytes) {
    // The data of an empty table may be null, which fwrite must not get.
    const bool written = bytes == 0 || std::fwrite(data, 1, bytes, file_) == bytes;
    return written ? OkStatus() : FileError("write", temporary_);
  }

  Status Sync() {
    const bool synced = std::fflush(file_) == 0 && fsync(fileno(file_)) == 0;
    const Status status = synced ? OkStatus() : FileError("write", temporary_);
    const bool closed = std::fclose(file_) == 0;
    file_ = nullptr;
    return status.ok() && !closed ? FileError("write", temporary_) : status;
  }

  Status Publish() {
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return FileError("rename to", path_);
    published_ = true;
    return OkStatus();
  }

 private:
  const std::string path_;
  const std::string temporary_;
  std::FILE* file_ = nullptr;
  bool published_ = false;
};

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

Status WriteRawFiles(const std::string& directory, const std::string& name, Span<const int64_t> keys,
                     int64_t dim, FunctionRef<const float*(int64_t row)> weights) {
  const std::string keys_path = RawKeysPath(directory, name);
  // A variable made in a name scope has a name with slashes.
  const std::string parent = fs::path(keys_path).parent_path().string();
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) {
    errno = error.value();
    return FileError("make the directory", parent);
  }
  NewFile keys_file(keys_path);
  NewFile values_file(RawValuesPath(directory, name));
  SOK_RETURN_IF_ERROR(keys_file.opened());
  SOK_RETURN_IF_ERROR(values_file.opened());
  SOK_RETURN_IF_ERROR(keys_file.Write(keys.data(), keys.size() * sizeof(int64_t)));
  for (int64_t row = 0; row < keys.size(); ++row) {
    SOK_RETURN_IF_ERROR(values_file.Write(weights(row), dim * sizeof(float)));
  }
  SOK_RETURN_IF_ERROR(keys_file.Sync());
  SOK_RETURN_IF_ERROR(values_file.Sync());
  SOK_RETURN_IF_ERROR(values_file.Publish());
  SOK_RETURN_IF_ERROR(keys_file.Publish());
  return SyncDirectory(parent);
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
