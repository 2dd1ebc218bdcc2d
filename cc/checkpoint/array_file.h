// The arrays of a checkpoint, each written or read with 1 MiB of memory.
//
// Arrays are tensors in the data files of TensorFlow's checkpoint: see tensor_index.h. They begin at
// multiples of a page, so that they can be mapped.
#ifndef SOK_CC_CHECKPOINT_ARRAY_FILE_H_
#define SOK_CC_CHECKPOINT_ARRAY_FILE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/checkpoint/array_type.h"
#include "cc/checkpoint/files.h"
#include "cc/checkpoint/tensor_index.h"

namespace sok {

// Each block of this size of an array has a checksum; the last block may be shorter.
constexpr int64_t kBlockBytes = 1 << 20;
constexpr int64_t BlocksOf(int64_t bytes) { return bytes / kBlockBytes + (bytes % kBlockBytes != 0 ? 1 : 0); }

// What a part's own entry says of an array.
struct SavedArray {
  ArrayType type;
  std::vector<uint32_t> crc32c;  // of each block of kBlockBytes

  int64_t bytes() const { return DataBytes(type); }
};

class ArrayWriter;

// Writes the data file of one rank, and then its index: a complete checkpoint in TensorFlow's format. Those
// of its members that fill different arrays may run at the same time, and WriteComplete beside them.
//
// Small arrays and strings that lie side by side in the file are written together, in windows that begin at
// multiples of their size: the kernel then handles pieces of that size, and not single pages.
class PartWriter {
 public:
  // Creates the data file of the checkpoint with this prefix.
  static StatusOr<std::unique_ptr<PartWriter>> Create(Files& files, const std::string& prefix);

  // An array with this name. Its type is known in advance.
  std::unique_ptr<ArrayWriter> NewArray(const std::string& name, const ArrayType& type);
  // A scalar string tensor.
  Status AddString(const std::string& name, std::string_view text);
  // A small tensor of numbers, of any shape.
  Status AddNumbers(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
                    std::string_view bytes);
  // Copies a tensor of another checkpoint, whose entry there is `entry` and stands for `place`.
  Status CopyTensor(const std::string& name, std::string_view entry, const TensorPlace& place,
                    FileReader* from);

  // Writes the windows that are complete: those before the arrays that are not finished.
  Status WriteComplete();
  // Writes the index, and syncs the data. All arrays must be finished. The names are guaranteed to be on the
  // disk only after the folder is synced too.
  Status Finish();

 private:
  friend class ArrayWriter;
  PartWriter(Files& files, std::string prefix, std::unique_ptr<FileWriter> data)
      : files_(files), prefix_(std::move(prefix)), data_(std::move(data)) {}
  // Bytes of the file that are not written yet.
  struct Window {
    int64_t begin = 0;
    int64_t bytes = 0;  // reserved so far
    std::unique_ptr<char[]> data;
  };
  // Reserves the next bytes of the data file.
  int64_t Reserve(int64_t bytes, int64_t alignment);
  // The same, of a small tensor: the memory of the reserved bytes, which may lie in several windows.
  std::vector<Span<char>> ReserveInWindows(int64_t bytes, int64_t alignment, int64_t* offset);
  void BeginWindow(int64_t begin);
  // Notes that all windows are complete, except the last, if no small array is unfinished.
  void NoteComplete();
  // Adds a tensor with these bytes, of which `place` has the rest.
  Status AddSmall(const std::string& name, TensorPlace place, std::string_view bytes);
  // FailedPrecondition if there is a tensor with this name.
  Status Add(const std::string& name, std::string entry);

  Files& files_;
  const std::string prefix_;
  const std::unique_ptr<FileWriter> data_;
  int64_t size_ = 0;  // of the data file
  TensorIndex index_;
  std::vector<std::unique_ptr<char[]>> spare_;  // blocks of finished arrays, for the next table's
  std::deque<Window> windows_;                  // in the order of the file
  std::vector<std::unique_ptr<char[]>> spare_windows_;
  size_t complete_ = 0;     // of windows_, from the first on
  int64_t unfinished_ = 0;  // arrays in windows_
};

// Writes one array. Not thread-safe.
class ArrayWriter {
 public:
  // Internal if the array would get more bytes than its type has.
  Status Write(const void* data, int64_t bytes);
  // Writes `count` floats from each of `items`, as numbers of the array's type, which is faster than a call
  // for each of them.
  Status WriteFromEach(Span<const float* const> items, int64_t first, int64_t count);
  // Internal if fewer bytes were written. Not at the same time as another call
  // for the same PartWriter.
  Status Finish();
  // The finished array.
  const SavedArray& array() const { return array_; }

 private:
  friend class PartWriter;
  ArrayWriter(PartWriter* part, std::string name, const ArrayType& type);
  bool IsSmall() const { return array_.bytes() < kBlockBytes; }
  // The memory that is filled next.
  Span<char> Room() const;
  // Called when Room() is full.
  Status Flush();

  PartWriter& part_;
  const std::string name_;
  int64_t offset_ = 0;
  SavedArray array_;
  int64_t written_ = 0;
  uint32_t crc32c_ = 0;             // of all that was written
  std::vector<Span<char>> pieces_;  // of a small array, in windows; those of `written_` bytes are left out
  std::unique_ptr<char[]> block_;   // of another
  int64_t held_ = 0;                // bytes in Room()
};

// An array in a data file that is open.
struct PlacedArray {
  SavedArray array;
  std::string name;  // the tensor's
  int shard = 0;     // the data file's number
  int64_t offset = 0;
  // The two kinds of arrays that no file has: every float, and int64 numbers that begin here and increase.
  std::optional<float> fill = {};
  std::optional<int64_t> first = {};
  int64_t increase = 1;
  // How arrays of other systems and those in 16 bits differ: one checksum of all bytes or none instead of one
  // for each block; the type of the numbers in the file, if it is another one (see array_type.h), and how
  // many there are for each one of the array.
  std::optional<uint32_t> whole_crc32c = {};
  std::string stored_as = {};
  int64_t stored_columns = 1;

  // The type of the numbers in the file.
  const std::string& stored_dtype() const { return stored_as.empty() ? array.type.dtype : stored_as; }
  bool has_file() const { return !fill.has_value() && !first.has_value(); }
  // In the file: of one number of the array, and of all.
  int64_t stored_item_bytes() const { return ItemBytes(stored_dtype()) * stored_columns; }
  int64_t stored_bytes() const { return array.bytes() / ItemBytes(array.type.dtype) * stored_item_bytes(); }
};

// Reads bytes of an array that begin and end between two numbers, without verifying them. The checksum of
// what was read in the file is appended to *crc32c, unless that is null. `path` is for errors.
Status ReadNumbers(FileReader* file, const std::string& path, const PlacedArray& array, int64_t begin,
                   int64_t bytes, char* to, uint32_t* crc32c);

// Reads block `number` of an array, of kBlockBytes or what is left, and verifies it. With one checksum of all
// bytes, the last block verifies all of them, and *crc32c is that of the blocks before, which the call
// updates. Null: they are known to be good. `path` is for errors.
Status ReadBlock(FileReader* file, const std::string& path, const PlacedArray& array, int64_t number,
                 char* block, uint32_t* crc32c);

// Lets the disk read block `number` of an array, if it has one, for a later ReadBlock.
void ReadBlockAhead(FileReader* file, const PlacedArray& array, int64_t number);

// The error of bytes whose checksum does not match.
Status DamagedBytes(const std::string& path, int64_t begin, int64_t bytes);

// Reads one array, and returns only verified data, except that an array with one checksum of all its bytes is
// verified when its last block is read. The arguments must outlive the reader. Not thread-safe.
class ArrayReader {
 public:
  // `path` is the data file's, for errors. DataLoss here and below if the file does not fit the description.
  static StatusOr<std::unique_ptr<ArrayReader>> Open(std::shared_ptr<FileReader> file,
                                                     const std::string& path, const PlacedArray& array);

  // The next bytes of the data.
  Status Read(void* data, int64_t bytes);
  Status Skip(int64_t bytes) { return Read(nullptr, bytes); }

  // The file and the tensor, for messages: "/ckpt/m.data-00000-of-00001:t#0/keys".
  const std::string& path() const { return path_; }

 private:
  ArrayReader(std::shared_ptr<FileReader> file, std::string path, const PlacedArray& array)
      : file_(std::move(file)), path_(std::move(path)), array_(array) {}
  // Reads the next block.
  Status NextBlock();

  const std::shared_ptr<FileReader> file_;
  const std::string path_;
  const PlacedArray& array_;
  int64_t next_block_ = 0;
  std::unique_ptr<char[]> block_;
  int64_t held_ = 0;     // bytes in block_
  int64_t at_ = 0;       // of block_
  uint32_t crc32c_ = 0;  // see ReadBlock
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_ARRAY_FILE_H_
