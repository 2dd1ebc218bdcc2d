#include "cc/checkpoint/row_columns.h"

#include <algorithm>

#include "cc/base/crc32c.h"
#include "cc/checkpoint/column_pieces.h"

namespace sok {
namespace {

// The most blocks of a column that the disk reads before they are needed. A disk is busy with fewer, and each
// is memory.
constexpr int64_t kBlocksAhead = 4;

}  // namespace

StatusOr<std::unique_ptr<FloatColumn>> FloatColumn::Open(const ShardSource& source, const std::string& array,
                                                         int64_t first, int64_t width) {
  const auto reader = source.Open(array);  // checks that the file has the array
  SOK_RETURN_IF_ERROR(reader.status());
  const PlacedArray& placed = *source.Find(array);
  SOK_ASSIGN_OR_RETURN(auto file, source.checkpoint.Data(placed.shard));
  return std::unique_ptr<FloatColumn>(
      new FloatColumn(placed, std::move(file), reader.value()->path(), first, width));
}

Status FloatColumn::BeginPiece(const PieceOfKeys& piece) {
  begin_ = end_;
  end_ = begin_ + static_cast<int64_t>(piece.all.size()) * row_bytes();
  if (end_ > array_.array.bytes()) return DataLoss("'", path_, "' ended early");
  blocks_ = end_ > begin_ ? (end_ - 1) / kBlockBytes - begin_ / kBlockBytes + 1 : 0;
  if (array_.has_file() && array_.array.crc32c.empty()) crc32c_.assign(static_cast<size_t>(blocks_), 0);
  const bool keeps_last = end_ % kBlockBytes != 0 && end_ < array_.array.bytes();
  // Not std::make_unique, which would fill it.
  if (keeps_last && next_kept_ == nullptr) next_kept_.reset(new char[static_cast<size_t>(kBlockBytes)]);
  return OkStatus();
}

void FloatColumn::LeaveOutPiece() {
  begin_ = end_;
  crc32c_.clear();
}

Status FloatColumn::Read(int64_t block, const PieceOfKeys& /*piece*/, Span<float* const> records,
                         char* buffer) {
  const int64_t number = begin_ / kBlockBytes + block;
  if (IsKept(number)) {
    Copy(number, kept_.get(), records);
    return OkStatus();
  }
  ReadBlockAhead(file_.get(), array_, number + std::min(blocks_, kBlocksAhead));
  const int64_t block_end = (number + 1) * kBlockBytes;
  char* const to = block_end > end_ && end_ < array_.array.bytes() ? next_kept_.get() : buffer;
  if (crc32c_.empty()) {
    SOK_RETURN_IF_ERROR(ReadBlock(file_.get(), path_, array_, number, to, nullptr));
  } else {
    SOK_RETURN_IF_ERROR(ReadNumbers(file_.get(), path_, array_, number * kBlockBytes, BytesOfBlock(number),
                                    to, &crc32c_[static_cast<size_t>(block)]));
  }
  Copy(number, to, records);
  return OkStatus();
}

void FloatColumn::Copy(int64_t number, const char* block, Span<float* const> records) const {
  const int64_t block_begin = number * kBlockBytes;
  const int64_t end = std::min(end_, block_begin + kBlockBytes);
  int64_t at = std::max(begin_, block_begin);
  int64_t row = (at - begin_) / row_bytes();
  int64_t in_row = (at - begin_) % row_bytes();
  while (at < end) {
    const int64_t bytes = std::min(row_bytes() - in_row, end - at);
    if (records[row] != nullptr) {
      char* const to = reinterpret_cast<char*>(records[row] + first_) + in_row;
      CopyItem(to, block + (at - block_begin), bytes);
    }
    at += bytes;
    ++row;
    in_row = 0;
  }
}

Status FloatColumn::EndPiece() {
  const int64_t first = begin_ / kBlockBytes;
  for (int64_t i = 0; i < static_cast<int64_t>(crc32c_.size()); ++i) {
    if (IsKept(first + i)) continue;  // counted in the piece before
    const int64_t stored =
        BytesOfBlock(first + i) / static_cast<int64_t>(sizeof(float)) * array_.stored_item_bytes();
    whole_crc32c_ = CombineCrc32c(whole_crc32c_, crc32c_[static_cast<size_t>(i)], stored);
  }
  const bool is_last = end_ == array_.array.bytes();
  if (is_last && array_.array.crc32c.empty() && array_.whole_crc32c.value_or(whole_crc32c_) != whole_crc32c_)
    return DamagedBytes(path_, 0, array_.stored_bytes());
  const int64_t last = (end_ - 1) / kBlockBytes;
  if (end_ % kBlockBytes != 0 && !is_last && blocks_ > 0 && !IsKept(last)) {
    std::swap(kept_, next_kept_);
    kept_number_ = last;
  }
  return OkStatus();
}

SlotTableColumn::SlotTableColumn(const ShardSource& source, const SavedOptimizer::Slot& slot, int64_t first,
                                 std::shared_ptr<FileReader> file, std::string path,
                                 std::unique_ptr<ArrayReader> keys)
    : FloatColumn(*source.Find("slot-" + slot.name), std::move(file), std::move(path), first, slot.width),
      source_(source),
      slot_(slot),
      left_(rows()),
      keys_(std::move(keys)) {}

StatusOr<std::unique_ptr<FloatColumn>> SlotTableColumn::Open(const ShardSource& source,
                                                             const SavedOptimizer::Slot& slot,
                                                             int64_t first) {
  SOK_ASSIGN_OR_RETURN(auto keys, source.Open(SlotKeys(slot.name)));
  SOK_ASSIGN_OR_RETURN(const auto values, source.Open("slot-" + slot.name));
  SOK_ASSIGN_OR_RETURN(auto file, source.checkpoint.Data(source.Find("slot-" + slot.name)->shard));
  return std::unique_ptr<FloatColumn>(
      new SlotTableColumn(source, slot, first, std::move(file), values->path(), std::move(keys)));
}

Status SlotTableColumn::BeginPiece(const PieceOfKeys& piece) {
  if (!by_key_) {
    SOK_ASSIGN_OR_RETURN(const auto has_next, HasNext(piece.all));
    if (has_next) return FloatColumn::BeginPiece(piece);
    SOK_RETURN_IF_ERROR(MakeIndex());
  }
  LeaveOutPiece();
  blocks_ = 1;
  return OkStatus();
}

Status SlotTableColumn::Read(int64_t block, const PieceOfKeys& piece, Span<float* const> records,
                             char* buffer) {
  if (!by_key_) return FloatColumn::Read(block, piece, records, buffer);
  for (size_t i = 0; i < piece.all.size(); ++i) {
    float* const record = records[static_cast<int64_t>(i)];
    if (record != nullptr) SOK_RETURN_IF_ERROR(ReadByKey(piece.all[i], record + first_));
  }
  return OkStatus();
}

StatusOr<bool> SlotTableColumn::HasNext(const std::vector<int64_t>& keys) {
  if (static_cast<int64_t>(keys.size()) > left_) return false;
  left_ -= static_cast<int64_t>(keys.size());
  piece_.resize(keys.size());
  SOK_RETURN_IF_ERROR(keys_->Read(piece_.data(), static_cast<int64_t>(keys.size() * sizeof(int64_t))));
  return piece_ == keys;
}

Status SlotTableColumn::MakeIndex() {
  by_key_ = true;
  SOK_ASSIGN_OR_RETURN(const auto values, source_.Open("slot-" + slot_.name));
  SOK_RETURN_IF_ERROR(values->Skip(array_.array.bytes()));
  SOK_ASSIGN_OR_RETURN(auto keys, source_.Open(SlotKeys(slot_.name)));
  index_.reserve(static_cast<size_t>(rows()));
  for (int64_t row = 0; row < rows(); row += static_cast<int64_t>(piece_.size())) {
    piece_.resize(static_cast<size_t>(std::min(kPieceItems, rows() - row)));
    SOK_RETURN_IF_ERROR(keys->Read(piece_.data(), static_cast<int64_t>(piece_.size() * sizeof(int64_t))));
    for (size_t i = 0; i < piece_.size(); ++i) index_.emplace_back(piece_[i], row + static_cast<int64_t>(i));
  }
  std::sort(index_.begin(), index_.end());
  for (size_t i = 1; i < index_.size(); ++i) {
    if (index_[i].first == index_[i - 1].first) {
      return DataLoss("'", keys->path(), "' has the key ", index_[i].first, " twice");
    }
  }
  return OkStatus();
}

Status SlotTableColumn::ReadByKey(int64_t key, float* to) const {
  const auto found = std::lower_bound(index_.begin(), index_.end(), std::pair(key, int64_t{0}));
  if (found == index_.end() || found->first != key) {
    std::fill_n(to, slot_.width, slot_.fill);
    return OkStatus();
  }
  return ReadNumbers(file_.get(), path_, array_, found->second * row_bytes(), row_bytes(),
                     reinterpret_cast<char*>(to), /*crc32c=*/nullptr);
}

}  // namespace sok
