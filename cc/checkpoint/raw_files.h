// The raw files of the original Sparse Operation Kit: `<name>_keys.file` has the keys, and
// `<name>_values.file` the float32 rows in the same order. Both are little-endian and without a header. A key
// takes eight bytes for the dtype "int64", and four for "int32" and "uint32" (see TableOptions).
#ifndef SOK_CC_CHECKPOINT_RAW_FILES_H_
#define SOK_CC_CHECKPOINT_RAW_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/checkpoint/files.h"
#include "cc/engine/engine.h"

namespace sok {

std::string RawKeysPath(const std::string& directory, const std::string& name);
std::string RawValuesPath(const std::string& directory, const std::string& name);

// Writes both files, in one process or in several that share the directory: one process calls Begin, all
// write their rows, and after that one calls Publish. Until then the files have temporary names, and earlier
// files are unchanged. The directory may be a symbolic link. A link with the temporary or the final name of a
// file is replaced by the file, and its target is unchanged. Memory: one buffer. Members with a
// Status return InvalidArgument if directory and name do not make a valid path (CheckPath).
class RawFilesWriter {
 public:
  // For `rows` rows of `dim` floats. All processes pass the same arguments.
  RawFilesWriter(const std::string& directory, const std::string& name, int64_t rows, int64_t dim,
                 std::string key_dtype = "int64");

  // Makes the directory if it is missing, and the files in their full size.
  Status Begin() const;
  // Writes the rows first, first + 1, ...: row first + i has key keys[i], of key_dtype, and the `dim` floats
  // at rows[i]. NotFound here and below if Begin() has not run, or has run in a directory that this process
  // does not see.
  Status Write(int64_t first, Span<const int64_t> keys, Span<const float* const> rows) const;
  // Syncs the files to the disk. Every process must call it after its last row.
  Status Sync() const;
  // Renames the files to their final names. All rows must be written.
  Status Publish() const;
  // Removes the files of Begin().
  void Abandon() const;

 private:
  Status CheckPaths() const;

  std::string keys_path_;
  std::string values_path_;
  int64_t rows_;
  int64_t dim_;
  int64_t key_bytes_;
};

// Reads the keys at once and the values in pieces. The sizes of the files give the bytes of a key. The width
// may differ from that of the table's dtype, as long as the keys fit the dtype.
class RawFilesReader {
 public:
  // NotFound for a missing file; InvalidArgument for an invalid path (CheckPath); DataLoss if a path is not a
  // file, the values are not a whole number of rows of `dim` floats, or the keys do not take four or eight
  // bytes for each row.
  static StatusOr<RawFilesReader> Open(const std::string& directory, const std::string& name, int64_t dim,
                                       std::string key_dtype = "int64");

  int64_t num_rows() const { return num_rows_; }
  // All keys. Takes some 40 bytes of memory for each, or for 2^25 of them. DataLoss if a key occurs twice or
  // does not fit key_dtype. With "int64", keys of four bytes are DataLoss if they are ambiguous: if their
  // values as int32 and as uint32 differ, or if they look like keys of eight bytes.
  Status ReadKeys(Executor& executor, std::vector<int64_t>* keys) const;
  // Reads the rows first, first + 1, ... to where `rows` point; null: a row that is passed over. `scratch` is
  // memory. Thread-safe.
  Status ReadRows(int64_t first, Span<float* const> rows, std::vector<float>* scratch) const;
  // Lets the disk read rows for a later ReadRows.
  void ReadRowsAhead(int64_t first, int64_t count) const;

 private:
  int64_t row_bytes() const { return dim_ * static_cast<int64_t>(sizeof(float)); }

  std::unique_ptr<FileReader> keys_file_;
  std::unique_ptr<FileReader> values_file_;
  std::string keys_path_;
  std::string values_path_;
  std::string key_dtype_;
  int64_t dim_ = 0;
  int64_t num_rows_ = 0;
  int64_t key_bytes_ = 0;
};

// Brings this rank's rows up to date, writes and syncs them. row_counts[r] is the number of rows of rank r,
// as counted earlier; it determines the position of rows in the files. Rows inserted after the count are left
// out. FailedPrecondition if the table has fewer rows than counted. Other errors as for RawFilesWriter.
Status WriteRawRows(const EngineContext& context, EngineTable* table, Span<const int64_t> row_counts,
                    const RawFilesWriter& writer);

// Makes a table of `engine` with `options`, and loads the rows that its rank holds. `keys` come from
// reader.ReadKeys. Errors as for RawFilesReader; ResourceExhausted if the capacity or memory is exhausted;
// InvalidArgument if a table without hashing has other keys than the files.
StatusOr<std::shared_ptr<EngineTable>> LoadRawRows(const EngineContext& context, Engine* engine,
                                                   const TableOptions& options, Span<const int64_t> keys,
                                                   const RawFilesReader& reader);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_RAW_FILES_H_
