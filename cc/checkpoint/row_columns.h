#ifndef SOK_CC_CHECKPOINT_ROW_COLUMNS_H_
#define SOK_CC_CHECKPOINT_ROW_COLUMNS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/checkpoint/array_file.h"
#include "cc/checkpoint/foreign_tables.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/shard_keys.h"

namespace sok {

// Reads an array of a shard that has some floats of each row, in pieces of the shard's rows. The blocks of a
// piece can be read by several threads. Each block of the file is read once, and its checksum verified before
// anything of it is in a row; one checksum of all bytes is verified at the end of the last piece.
class FloatColumn {
 public:
  // Each row of the array is `width` floats, which belong at position `first` of a row's record. The source
  // must outlive the column.
  static StatusOr<std::unique_ptr<FloatColumn>> Open(const ShardSource& source, const std::string& array,
                                                     int64_t first, int64_t width);
  virtual ~FloatColumn() = default;

  // Begins the next piece, of which piece.all.size() rows are read.
  virtual Status BeginPiece(const PieceOfKeys& piece);
  // The number of blocks of the piece.
  int64_t blocks() const { return blocks_; }
  // Reads a block into the records of the piece's rows; null: a row that is passed over. `buffer` has
  // kBlockBytes. Calls for different blocks share no data.
  virtual Status Read(int64_t block, const PieceOfKeys& piece, Span<float* const> records, char* buffer);
  // Called when all blocks are read.
  Status EndPiece();

 protected:
  FloatColumn(const PlacedArray& array, std::shared_ptr<FileReader> file, std::string path, int64_t first,
              int64_t width)
      : array_(array), file_(std::move(file)), path_(std::move(path)), first_(first), width_(width) {}
  // Begins a piece of which the column itself reads nothing.
  void LeaveOutPiece();
  int64_t row_bytes() const { return width_ * static_cast<int64_t>(sizeof(float)); }

  const PlacedArray& array_;
  const std::shared_ptr<FileReader> file_;
  const std::string path_;  // for messages, as ArrayReader::path
  const int64_t first_;
  const int64_t width_;
  int64_t blocks_ = 0;

 private:
  int64_t BytesOfBlock(int64_t number) const {
    return std::min(kBlockBytes, array_.array.bytes() - number * kBlockBytes);
  }
  bool IsKept(int64_t number) const { return kept_ != nullptr && number == kept_number_; }
  // Copies what a block has of the piece.
  void Copy(int64_t number, const char* block, Span<float* const> records) const;

  int64_t begin_ = 0;  // bytes of the array before the piece
  int64_t end_ = 0;    // and before the next one
  // A block of which the next piece has bytes too, and the memory for the one after it.
  std::unique_ptr<char[]> kept_;
  std::unique_ptr<char[]> next_kept_;
  int64_t kept_number_ = -1;
  std::vector<uint32_t> crc32c_;  // of the piece's blocks in the file, if there is one checksum of all bytes
  uint32_t whole_crc32c_ = 0;     // of all blocks before the piece
};

// The floats of a slot that another system saved as a table of its own. Its keys are usually those of the
// rows, in the same order. From the first piece on where they are not, rows are found by their keys, with 16
// bytes of memory for each key of the slot.
class SlotTableColumn final : public FloatColumn {
 public:
  static StatusOr<std::unique_ptr<FloatColumn>> Open(const ShardSource& source,
                                                     const SavedOptimizer::Slot& slot, int64_t first);

  Status BeginPiece(const PieceOfKeys& piece) override;
  Status Read(int64_t block, const PieceOfKeys& piece, Span<float* const> records, char* buffer) override;

 private:
  SlotTableColumn(const ShardSource& source, const SavedOptimizer::Slot& slot, int64_t first,
                  std::shared_ptr<FileReader> file, std::string path, std::unique_ptr<ArrayReader> keys);
  int64_t rows() const { return source_.Find(SlotKeys(slot_.name))->array.type.shape[0]; }
  // Whether the next keys of the slot are these.
  StatusOr<bool> HasNext(const std::vector<int64_t>& keys);
  // Verifies the values, which are then read in another order, and makes the index of all keys.
  Status MakeIndex();
  Status ReadByKey(int64_t key, float* to) const;

  const ShardSource& source_;
  const SavedOptimizer::Slot& slot_;
  int64_t left_;  // keys that were not compared
  std::unique_ptr<ArrayReader> keys_;
  bool by_key_ = false;
  std::vector<int64_t> piece_;
  std::vector<std::pair<int64_t, int64_t>> index_;  // keys and their rows
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_ROW_COLUMNS_H_
