// The raw files of the original Sparse Operation Kit: `<name>_keys.file` holds int64 keys, one after the
// other,
// `<name>_values.file` the float32 rows in the same order, both little-endian and without any header.
#ifndef SOK_CC_CHECKPOINT_RAW_FILES_H_
#define SOK_CC_CHECKPOINT_RAW_FILES_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

std::string RawKeysPath(const std::string& directory, const std::string& name);
std::string RawValuesPath(const std::string& directory, const std::string& name);

// Writes both files: row i has key keys[i] and the `dim` floats at weights(i). Makes the directory where it
// is missing. The files appear under their names only when complete and synced to the disk; on an error files
// that were there stay as they were. Needs no memory beyond a buffer.
Status WriteRawFiles(const std::string& directory, const std::string& name, Span<const int64_t> keys,
                     int64_t dim, FunctionRef<const float*(int64_t row)> weights);

// Reads both files in pieces.
class RawFilesReader {
 public:
  // NotFound for a missing file; DataLoss where the sizes are no whole number of keys, or of rows of `dim`
  // floats, or do not belong together.
  static StatusOr<RawFilesReader> Open(const std::string& directory, const std::string& name, int64_t dim);

  int64_t num_rows() const { return num_rows_; }
  // All keys. DataLoss where one stands twice.
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
  int64_t num_rows_ = 0;
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_RAW_FILES_H_
