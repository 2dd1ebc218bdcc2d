#include "cc/checkpoint/raw_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "cc/base/hash.h"
#include "cc/base/object_pool.h"
#include "cc/base/printable.h"
#include "cc/base/status.h"
#include "cc/checkpoint/array_file.h"
#include "cc/checkpoint/column_pieces.h"
#include "cc/cpu/dedup/dedup.h"

namespace sok {
namespace {

namespace fs = std::filesystem;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "raw files are little-endian, and are copies of memory");

// The name of a file until Publish.
std::string Unfinished(const std::string& path) { return path + ".unfinished"; }
// The name of an earlier file until there is a new one.
std::string Replaced(const std::string& path) { return path + ".replaced"; }

// A file for writing. A link in its place is not followed, and a pipe does not block.
class OpenFile {
 public:
  OpenFile(std::string path, int flags)
      : path_(std::move(path)),
        file_(open(path_.c_str(), flags | O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666)) {}
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

// The size of the buffer that collects rows before they are written.
constexpr int64_t kBufferFloats = 1 << 18;

// A rename survives a power failure only after its directory was synced.
Status SyncDirectory(const std::string& path) {
  const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY);
  if (directory < 0) return FileError("open", path);
  const Status status = fsync(directory) == 0 ? OkStatus() : FileError("sync", path);
  close(directory);
  return status;
}

Status SizeOf(const std::string& path, int64_t* bytes) {
  SOK_RETURN_IF_ERROR(CheckPath(path));
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) return DataLoss("'", path, "' is not a file");
  const uintmax_t size = fs::file_size(path, error);
  if (error) {
    errno = error.value();
    return FileError("read", path);
  }
  *bytes = static_cast<int64_t>(size);
  return OkStatus();
}

int64_t KeyBytes(const std::string& key_dtype) { return key_dtype == "int64" ? 8 : 4; }

// The key of `key_dtype` in four bytes.
int64_t WidenedKey(uint32_t word, const std::string& key_dtype) {
  return key_dtype == "uint32" ? int64_t{word} : int64_t{static_cast<int32_t>(word)};
}

// Whether four-byte words look like the halves of small eight-byte keys.
bool MayBeHalves(const std::vector<uint32_t>& words) {
  for (size_t i = 1; i < words.size(); i += 2) {
    if (words[i] != 0) return false;
  }
  return words.size() > 1;
}

// DataLoss for a key that occurs twice.
Status CheckDistinct(Executor& executor, Span<const int64_t> keys, const std::string& path) {
  constexpr int64_t kAtOnce = int64_t{1} << 25;
  const auto passes = static_cast<uint64_t>(keys.size() / kAtOnce + 1);
  Deduplicator deduplicator;
  std::vector<int64_t> chosen;
  std::vector<int64_t> distinct;
  std::vector<int32_t> firsts;
  for (uint64_t pass = 0; pass < passes; ++pass) {
    Span<const int64_t> some = keys;
    if (passes > 1) {
      chosen.clear();
      std::copy_if(keys.begin(), keys.end(), std::back_inserter(chosen), [&](int64_t key) {
        return (Mix64(static_cast<uint64_t>(key)) >> 32) * passes >> 32 == pass;
      });
      some = chosen;
    }
    firsts.resize(static_cast<size_t>(some.size()));
    SOK_RETURN_IF_ERROR(deduplicator.Run(executor, some, &distinct, Span<int32_t>(firsts)));
    if (static_cast<int64_t>(distinct.size()) == some.size()) continue;
    int64_t twice = 0;
    while (firsts[twice] == static_cast<int32_t>(twice)) ++twice;
    return DataLoss("'", path, "' has the key ", some[twice], " twice");
  }
  return OkStatus();
}

// Whether `key`, which takes `key_bytes` in a file, fits `key_dtype` and is unambiguous.
bool IsKeyOf(const std::string& key_dtype, int64_t key_bytes, int64_t key) {
  if (key_dtype == "int32") return key == static_cast<int32_t>(key);
  if (key_dtype == "uint32") return key == static_cast<int64_t>(static_cast<uint32_t>(key));
  return key_bytes == 8 || key >= 0;
}

}  // namespace

std::string RawKeysPath(const std::string& directory, const std::string& name) {
  return (fs::path(directory) / (name + "_keys.file")).string();
}

std::string RawValuesPath(const std::string& directory, const std::string& name) {
  return (fs::path(directory) / (name + "_values.file")).string();
}

RawFilesWriter::RawFilesWriter(const std::string& directory, const std::string& name, int64_t rows,
                               int64_t dim, std::string key_dtype)
    : keys_path_(RawKeysPath(directory, name)),
      values_path_(RawValuesPath(directory, name)),
      rows_(rows),
      dim_(dim),
      key_bytes_(KeyBytes(key_dtype)) {}

Status RawFilesWriter::CheckPaths() const {
  SOK_RETURN_IF_ERROR(CheckPath(Unfinished(keys_path_)));
  SOK_RETURN_IF_ERROR(CheckPath(Replaced(keys_path_)));
  return CheckPath(Unfinished(values_path_));
}

Status RawFilesWriter::Begin() const {
  SOK_RETURN_IF_ERROR(CheckPaths());
  // The name of a variable in a name scope has slashes.
  const std::string parent = fs::path(keys_path_).parent_path().string();
  SOK_RETURN_IF_ERROR(MakeFolders(PosixFiles(), parent));
  const std::pair<const std::string&, int64_t> files[] = {{keys_path_, rows_ * key_bytes_},
                                                          {values_path_, rows_ * dim_ * 4}};
  for (const auto& [path, bytes] : files) {
    // Removes a link, or the file of a killed process.
    unlink(Unfinished(path).c_str());
    OpenFile file(Unfinished(path), O_CREAT | O_EXCL);
    SOK_RETURN_IF_ERROR(file.opened());
    SOK_RETURN_IF_ERROR(file.Resize(bytes));
  }
  return SyncDirectory(parent);
}

Status RawFilesWriter::Write(int64_t first, Span<const int64_t> keys, Span<const float* const> rows) const {
  SOK_RETURN_IF_ERROR(CheckPaths());
  OpenFile keys_file(Unfinished(keys_path_), 0);
  OpenFile values_file(Unfinished(values_path_), 0);
  SOK_RETURN_IF_ERROR(keys_file.opened());
  SOK_RETURN_IF_ERROR(values_file.opened());
  if (key_bytes_ == 8) {
    SOK_RETURN_IF_ERROR(keys_file.WriteAt(first * 8, keys.data(), keys.size() * 8));
  } else {
    const std::vector<uint32_t> words(keys.begin(), keys.end());
    SOK_RETURN_IF_ERROR(keys_file.WriteAt(first * 4, words.data(), keys.size() * 4));
  }
  const int64_t rows_at_once = std::max<int64_t>(1, kBufferFloats / dim_);
  std::vector<float> buffer(std::min(rows_at_once, keys.size()) * dim_);
  for (int64_t row = 0; row < keys.size(); row += rows_at_once) {
    const int64_t count = std::min(rows_at_once, keys.size() - row);
    for (int64_t i = 0; i < count; ++i) std::copy_n(rows[row + i], dim_, buffer.data() + i * dim_);
    SOK_RETURN_IF_ERROR(values_file.WriteAt((first + row) * dim_ * 4, buffer.data(), count * dim_ * 4));
  }
  return OkStatus();
}

Status RawFilesWriter::Sync() const {
  SOK_RETURN_IF_ERROR(CheckPaths());
  for (const std::string& path : {keys_path_, values_path_}) {
    OpenFile file(Unfinished(path), 0);
    SOK_RETURN_IF_ERROR(file.opened());
    SOK_RETURN_IF_ERROR(file.Sync());
  }
  return OkStatus();
}

Status RawFilesWriter::Publish() const {
  SOK_RETURN_IF_ERROR(CheckPaths());
  // Two files cannot be replaced at once. Between the two there are no keys, so that no reader takes the old
  // keys with the new rows.
  std::error_code ignored;
  if (fs::is_directory(fs::symlink_status(keys_path_, ignored))) {
    errno = EISDIR;
    return FileError("rename to", keys_path_);
  }
  const std::string replaced = Replaced(keys_path_);
  const bool replaces = std::rename(keys_path_.c_str(), replaced.c_str()) == 0;
  if (!replaces && errno != ENOENT) return FileError("replace", keys_path_);
  for (const std::string& path : {values_path_, keys_path_}) {
    if (std::rename(Unfinished(path).c_str(), path.c_str()) == 0) continue;
    const Status error = FileError("rename to", path);
    // The old keys return only if the old rows are still there: an error can come after the rename was made.
    const bool was_made = access(Unfinished(path).c_str(), F_OK) != 0;
    if (replaces && path == values_path_ && !was_made) std::rename(replaced.c_str(), keys_path_.c_str());
    return error;
  }
  // Also that of a dump which was killed, or failed, between the two.
  std::remove(replaced.c_str());
  return SyncDirectory(fs::path(keys_path_).parent_path().string());
}

void RawFilesWriter::Abandon() const {
  if (!CheckPaths().ok()) return;
  std::remove(Unfinished(keys_path_).c_str());
  std::remove(Unfinished(values_path_).c_str());
}

StatusOr<RawFilesReader> RawFilesReader::Open(const std::string& directory, const std::string& name,
                                              int64_t dim, std::string key_dtype) {
  RawFilesReader reader;
  reader.key_dtype_ = std::move(key_dtype);
  reader.dim_ = dim;
  reader.keys_path_ = RawKeysPath(directory, name);
  reader.values_path_ = RawValuesPath(directory, name);
  int64_t keys_bytes = 0;
  int64_t values_bytes = 0;
  SOK_RETURN_IF_ERROR(SizeOf(reader.keys_path_, &keys_bytes));
  SOK_RETURN_IF_ERROR(SizeOf(reader.values_path_, &values_bytes));
  const int64_t row_bytes = reader.row_bytes();
  if (values_bytes % row_bytes != 0) {
    return DataLoss("'", reader.values_path_, "' has ", values_bytes,
                    " bytes, not a whole number of rows of ", dim, " floats");
  }
  reader.num_rows_ = values_bytes / row_bytes;
  reader.key_bytes_ = reader.num_rows_ == 0 ? KeyBytes(reader.key_dtype_) : keys_bytes / reader.num_rows_;
  if (keys_bytes != reader.num_rows_ * reader.key_bytes_ ||
      (reader.key_bytes_ != 4 && reader.key_bytes_ != 8)) {
    return DataLoss("'", reader.keys_path_, "' has ", keys_bytes, " bytes, but '", reader.values_path_,
                    "' holds ", reader.num_rows_, " rows of ", dim, " floats, whose keys need ",
                    reader.num_rows_ * 4, " or ", reader.num_rows_ * 8);
  }
  for (const auto& [path, file] : {std::pair(&reader.keys_path_, &reader.keys_file_),
                                   std::pair(&reader.values_path_, &reader.values_file_)}) {
    SOK_ASSIGN_OR_RETURN(*file, PosixFiles().Open(*path));
  }
  return StatusOr<RawFilesReader>(std::move(reader));
}

Status RawFilesReader::ReadKeys(Executor& executor, std::vector<int64_t>* keys) const {
  keys->resize(num_rows_);
  if (key_bytes_ == 8) {
    SOK_RETURN_IF_ERROR(keys_file_->ReadAt(0, keys->data(), num_rows_ * 8));
  } else {
    std::vector<uint32_t> words(num_rows_);
    SOK_RETURN_IF_ERROR(keys_file_->ReadAt(0, words.data(), num_rows_ * 4));
    if (key_dtype_ == "int64" && MayBeHalves(words)) {
      return DataLoss("'", keys_path_, "' is ambiguous: it has ", num_rows_,
                      " keys of four bytes, or half as many keys of eight bytes and a missing rest, ",
                      "as every second word is 0");
    }
    std::transform(words.begin(), words.end(), keys->begin(),
                   [&](uint32_t word) { return WidenedKey(word, key_dtype_); });
  }
  for (const int64_t key : *keys) {
    if (!IsKeyOf(key_dtype_, key_bytes_, key)) {
      return DataLoss("'", keys_path_, "' holds the ", key_bytes_, "-byte key ", key, ", which ",
                      key_bytes_ == 8 ? "does not fit " : "may be an int32 or a uint32, which differ as ",
                      key_dtype_);
    }
  }
  return CheckDistinct(executor, *keys, keys_path_);
}

Status RawFilesReader::ReadRows(int64_t first, Span<float* const> rows, std::vector<float>* scratch) const {
  scratch->resize(static_cast<size_t>(rows.size() * dim_));
  SOK_RETURN_IF_ERROR(values_file_->ReadAt(first * row_bytes(), scratch->data(), rows.size() * row_bytes()));
  for (int64_t i = 0; i < rows.size(); ++i) {
    if (rows[i] != nullptr) CopyItem(rows[i], scratch->data() + i * dim_, row_bytes());
  }
  return OkStatus();
}

void RawFilesReader::ReadRowsAhead(int64_t first, int64_t count) const {
  if (first < num_rows_) values_file_->ReadAhead(first * row_bytes(), count * row_bytes());
}

namespace {

Status WriteRows(int64_t first, int64_t count, const RawFilesWriter& writer, HeldTable* table) {
  RowsToRead what;
  what.up_to_date = true;
  what.limit = count;
  SOK_RETURN_IF_ERROR(table->ReadRows(what, [&](const RowPiece& piece) {
    SOK_RETURN_IF_ERROR(writer.Write(first, piece.keys, piece.records));
    first += piece.keys.size();
    return OkStatus();
  }));
  return writer.Sync();
}

// Reads rows into the table of a rank, piece by piece.
class RawRowsLoader {
 public:
  RawRowsLoader(Executor& executor, const RawFilesReader& reader, HeldTable* fresh)
      : executor_(executor), reader_(reader), fresh_(*fresh) {}

  // Reads the rows of `keys`, which are all of the files. Those that this rank holds go into the table;
  // *filled is their number.
  Status Run(Span<const int64_t> keys, int64_t* filled) {
    const Placement& placement = fresh_.options().placement;
    SOK_RETURN_IF_ERROR(
        fresh_.MakeRoom(placement.is_replicated() ? keys.size() : keys.size() / fresh_.options().ranks));
    const int64_t at_once = fresh_.max_rows_to_fill();
    for (int64_t first = 0; first < keys.size(); first += at_once) {
      SOK_RETURN_IF_ERROR(ReadPiece(first, keys.subspan(first, std::min(at_once, keys.size() - first))));
      *filled += static_cast<int64_t>(own_.size());
    }
    return OkStatus();
  }

 private:
  Status ReadPiece(int64_t first, Span<const int64_t> keys) {
    const TableOptions& options = fresh_.options();
    const KeyOwners owners = options.placement.owners(options.ranks);
    own_.clear();
    is_own_.clear();
    for (const int64_t key : keys) {
      is_own_.push_back(owners.Holds(options.rank, key));
      if (is_own_.back()) own_.push_back(key);
    }
    return fresh_.FillRows(own_, RowParts(), [&](const RowsToFill& rows) {
      int64_t next = 0;
      records_.clear();
      for (const bool mine : is_own_) records_.push_back(mine ? rows.records[next++] : nullptr);
      return ReadBlocks(first, records_);
    });
  }

  // Reads rows in blocks of about kBlockBytes, on all threads.
  Status ReadBlocks(int64_t first, Span<float* const> records) {
    const int64_t row_bytes = fresh_.options().dim * static_cast<int64_t>(sizeof(float));
    const int64_t rows = std::max<int64_t>(1, kBlockBytes / row_bytes);
    return ForEachColumn(executor_, (records.size() - 1) / rows + 1, records.size(), [&](int64_t block) {
      const int64_t begin = block * rows;
      const int64_t count = std::min(rows, records.size() - begin);
      reader_.ReadRowsAhead(first + records.size() + begin, count);
      return reader_.ReadRows(first + begin, records.subspan(begin, count), scratch_.Take().get());
    });
  }

  Executor& executor_;
  const RawFilesReader& reader_;
  HeldTable& fresh_;
  std::vector<int64_t> own_;
  std::vector<bool> is_own_;
  std::vector<float*> records_;
  ObjectPool<std::vector<float>> scratch_;
};

}  // namespace

Status WriteRawRows(const EngineContext& context, EngineTable* table, Span<const int64_t> row_counts,
                    const RawFilesWriter& writer) {
  const TableOptions& options = table->options();
  SOK_ASSIGN_OR_RETURN(const auto held, table->Hold(context));
  const int64_t own = row_counts[options.rank];
  const int64_t rows = held->state().rows;
  if (rows < own) {
    return FailedPrecondition("Embedding variable '", options.name, "' has ", rows, " rows, fewer than the ",
                              own, " counted before: its table was replaced while it was written");
  }
  const int64_t first = std::accumulate(row_counts.begin(), row_counts.begin() + options.rank, int64_t{0});
  const Status status = WriteRows(first, own, writer, held.get());
  if (status.code() != StatusCode::kNotFound || options.rank == 0) return status;
  return NotFound(status.message(), " (all ranks must see the directory in which rank 0 made the file)");
}

StatusOr<std::shared_ptr<EngineTable>> LoadRawRows(const EngineContext& context, Engine* engine,
                                                   const TableOptions& options, Span<const int64_t> keys,
                                                   const RawFilesReader& reader) {
  auto made = engine->MakeTable(context, options);
  SOK_RETURN_IF_ERROR(made.status());
  SOK_ASSIGN_OR_RETURN(const auto held, made.value()->Hold(context));
  const Status status = WithinMemory([&]() -> Status {
    int64_t filled = 0;
    RawRowsLoader loader(context.executor, reader, held.get());
    SOK_RETURN_IF_ERROR(loader.Run(keys, &filled));
    const int64_t rows = held->state().rows;
    if (filled == rows) return OkStatus();
    // The keys are distinct, so this is a table without hashing.
    return InvalidArgument("Embedding variable '", options.name, "' has ", rows, " rows on rank ",
                           options.rank, ", but the files have only ", filled, " of their keys");
  });
  if (!status.ok()) return status;
  return made;
}

}  // namespace sok
