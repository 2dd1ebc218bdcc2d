// The raw files of the original Sparse Operation Kit: `<name>_keys.file` holds the keys, one after the other,
// `<name>_values.file` the float32 rows in the same order, both little-endian and without any header. Keys
// take the bytes of their dtype, "int64", "int32" or "uint32" as in TableOptions: eight, or four.
#ifndef SOK_CC_CHECKPOINT_RAW_FILES_H_
#define SOK_CC_CHECKPOINT_RAW_FILES_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

std::string RawKeysPath(const std::string& directory, const std::string& name);
std::string RawValuesPath(const std::string& directory, const std::string& name);

// Both files while they are written, by one process or by several that share the directory: one begins, all
// write their rows, and when all have, one publishes. Until then the files have other names, and those that
// were there stay as they are. The directory may be a symbolic link; one that has the name of a file, before
// or after, gives way to the file, and what it leads to stays as it is. Needs no memory beyond a buffer.
// InvalidArgument of all members for a directory or a name that makes no path (CheckPath).
class RawFilesWriter {
 public:
  // Files for `rows` rows of `dim` floats. Every writer gives the same arguments.
  RawFilesWriter(const std::string& directory, const std::string& name, int64_t rows, int64_t dim,
                 std::string key_dtype = "int64");

  // Makes the directory, where it is missing, and the files in their whole size.
  Status Begin() const;
  // Writes the rows first, first + 1, ...: row first + i has key keys[i], of key_dtype, and the `dim` floats
  // at rows[i]. NotFound here and below where Begin() has not run, or has run in a directory that this
  // process does not see.
  Status Write(int64_t first, Span<const int64_t> keys, Span<const float* const> rows) const;
  // Brings what was written to the disk. Every writer does so after its last row.
  Status Sync() const;
  // Gives the files their names. Needs all rows to be written.
  Status Publish() const;
  // Removes what Begin() made.
  void Abandon() const;

 private:
  Status CheckPaths() const;

  std::string keys_path_;
  std::string values_path_;
  int64_t rows_;
  int64_t dim_;
  int64_t key_bytes_;
};

// Reads both files in pieces. The sizes of the files tell the bytes of a key, which may be those of another
// dtype than the table's: files are read as long as they hold keys of the table's dtype.
class RawFilesReader {
 public:
  // NotFound for a missing file, InvalidArgument for what is no path (CheckPath); DataLoss where something
  // else than a file is there, the values are no whole number of rows of `dim` floats, or the keys do not
  // take four or eight bytes for each of them.
  static StatusOr<RawFilesReader> Open(const std::string& directory, const std::string& name, int64_t dim,
                                       std::string key_dtype = "int64");

  int64_t num_rows() const { return num_rows_; }
  // All keys. DataLoss where one stands twice, or is none of key_dtype. An int64 table takes keys of four
  // bytes unless they may be others: those that differ as int32 and as uint32, and those that look like eight
  // bytes.
  Status ReadKeys(std::vector<int64_t>* keys);
  // The next values.size() floats of the rows, in the order of the keys.
  Status ReadValues(Span<float> values);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;

  File keys_file_;
  File values_file_;
  std::string keys_path_;
  std::string values_path_;
  std::string key_dtype_;
  int64_t num_rows_ = 0;
  int64_t key_bytes_ = 0;
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_RAW_FILES_H_
