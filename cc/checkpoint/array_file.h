// The arrays of a checkpoint, each written or read with 1 MiB of memory.
#ifndef SOK_CC_CHECKPOINT_ARRAY_FILE_H_
#define SOK_CC_CHECKPOINT_ARRAY_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/checksums.h"
#include "cc/checkpoint/files.h"
#include "cc/checkpoint/npy_header.h"

namespace sok {

// An array as a manifest lists it.
struct ArrayFile {
  std::string file;  // relative to the manifest: "shard-00000/keys.npy"
  ArrayType type;
  int64_t bytes = 0;            // of the file, header included
  std::vector<uint32_t> crc32;  // of each block of kBlockBytes of the file
};

// Writes one .npy file of a shape that is known in advance. Not thread-safe.
class ArrayWriter {
 public:
  // `folder` is the table's path: see checkpoint_path.h.
  static StatusOr<std::unique_ptr<ArrayWriter>> Create(Files& files, const std::string& folder,
                                                       const std::string& file, const ArrayType& type);

  Status Write(const void* data, int64_t bytes);
  // Syncs the complete file. Internal unless as many bytes were written as the array's type has.
  Status Finish();
  // The manifest entry of the finished file.
  const ArrayFile& array() const { return array_; }

 private:
  ArrayWriter(std::unique_ptr<FileWriter> file, ArrayFile array);
  Status Flush();

  std::unique_ptr<FileWriter> file_;
  ArrayFile array_;
  int64_t written_ = 0;
  std::vector<char> block_;
};

// Reads one .npy file as a manifest describes it, and returns only verified data. The ArrayFile must outlive
// the reader. Not thread-safe.
class ArrayReader {
 public:
  // Errors here and below: NotFound for a missing file, DataLoss if it does not match the description.
  static StatusOr<std::unique_ptr<ArrayReader>> Open(Files& files, const std::string& folder,
                                                     const ArrayFile& array);

  // The next bytes of the data.
  Status Read(void* data, int64_t bytes);
  Status Skip(int64_t bytes) { return Read(nullptr, bytes); }

  const std::string& path() const { return path_; }

 private:
  ArrayReader(std::string path, std::unique_ptr<FileReader> file, const ArrayFile& array);
  // Reads and verifies the next block.
  Status NextBlock();

  const std::string path_;
  std::unique_ptr<FileReader> file_;
  const ArrayFile& array_;
  int64_t next_block_ = 0;
  std::vector<char> block_;
  int64_t at_ = 0;  // of block_
};

// Reads a whole file and verifies its size, header and checksums.
Status CheckArray(Files& files, const std::string& folder, const ArrayFile& array);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_ARRAY_FILE_H_
