#include "cc/checkpoint/array_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cc/base/crc32c.h"
#include "cc/base/prefetch.h"
#include "cc/checkpoint/array_type.h"
#include "cc/checkpoint/column_pieces.h"
#include "cc/table/record_layout.h"

namespace sok {
namespace {

constexpr int64_t kPage = 4096;
// Large arrays begin where a block of the file does, so that the kernel handles whole blocks.
constexpr int64_t kLargeArray = 8 * kBlockBytes;
constexpr int64_t kWindow = kBlockBytes / 4;
// Complete windows that are kept to be written beside other work.
constexpr size_t kMaxComplete = 16;

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

StatusOr<std::unique_ptr<PartWriter>> PartWriter::Create(Files& files, const std::string& prefix) {
  SOK_ASSIGN_OR_RETURN(auto data, files.Create(DataPath(prefix, 0, 1)));
  return std::unique_ptr<PartWriter>(new PartWriter(files, prefix, std::move(data)));
}

int64_t PartWriter::Reserve(int64_t bytes, int64_t alignment) {
  const int64_t offset = RoundUp(size_, alignment);
  size_ = offset + bytes;
  return offset;
}

void PartWriter::BeginWindow(int64_t begin) {
  Window window;
  window.begin = begin;
  if (spare_windows_.empty()) {
    window.data.reset(new char[static_cast<size_t>(kWindow)]);
  } else {
    window.data = std::move(spare_windows_.back());
    spare_windows_.pop_back();
  }
  windows_.push_back(std::move(window));
}

std::vector<Span<char>> PartWriter::ReserveInWindows(int64_t bytes, int64_t alignment, int64_t* offset) {
  const int64_t before = size_;
  *offset = Reserve(bytes, alignment);
  std::vector<Span<char>> pieces;
  // The bytes before are of a window unless a large array ends there.
  const bool adjoins = !windows_.empty() && windows_.back().begin + windows_.back().bytes == before;
  for (int64_t at = adjoins ? before : *offset; at < size_;) {
    if (!adjoins && pieces.empty()) BeginWindow(at);
    if (at % kWindow == 0 && at != windows_.back().begin) BeginWindow(at);
    Window& window = windows_.back();
    const int64_t piece = std::min(RoundUp(at + 1, kWindow), at < *offset ? *offset : size_) - at;
    char* const memory = window.data.get() + (at - window.begin);
    if (at < *offset) {
      std::memset(memory, 0, static_cast<size_t>(piece));
    } else {
      pieces.emplace_back(memory, piece);
    }
    at += piece;
    window.bytes = at - window.begin;
  }
  return pieces;
}

void PartWriter::NoteComplete() {
  if (unfinished_ == 0 && !windows_.empty()) complete_ = windows_.size() - 1;
}

Status PartWriter::WriteComplete() {
  for (; complete_ > 0; --complete_) {
    Window& window = windows_.front();
    SOK_RETURN_IF_ERROR(data_->WriteAt(window.begin, window.data.get(), window.bytes));
    spare_windows_.push_back(std::move(window.data));
    windows_.pop_front();
  }
  return OkStatus();
}

std::unique_ptr<ArrayWriter> PartWriter::NewArray(const std::string& name, const ArrayType& type) {
  return std::unique_ptr<ArrayWriter>(new ArrayWriter(this, name, type));
}

Status PartWriter::AddString(const std::string& name, std::string_view text) {
  TensorPlace place;
  place.dtype = kStringDtype;
  place.crc32c = StringTensorCrc32c(text);
  return AddSmall(name, place, EncodeStringTensor(text));
}

Status PartWriter::AddNumbers(const std::string& name, const std::string& dtype,
                              const std::vector<int64_t>& shape, std::string_view bytes) {
  TensorPlace place;
  place.dtype = dtype;
  place.shape = shape;
  place.crc32c = Crc32c(bytes);
  return AddSmall(name, place, bytes);
}

Status PartWriter::AddSmall(const std::string& name, TensorPlace place, std::string_view bytes) {
  place.bytes = static_cast<int64_t>(bytes.size());
  const char* next = bytes.data();
  for (const Span<char> piece : ReserveInWindows(place.bytes, 1, &place.offset)) {
    std::memcpy(piece.data(), next, static_cast<size_t>(piece.size()));
    next += piece.size();
  }
  SOK_RETURN_IF_ERROR(Add(name, EncodeTensorPlace(place)));
  NoteComplete();
  return complete_ > kMaxComplete ? WriteComplete() : OkStatus();
}

Status PartWriter::CopyTensor(const std::string& name, std::string_view entry, const TensorPlace& place,
                              FileReader* from) {
  const int64_t offset = Reserve(place.bytes, kPage);
  std::vector<char> block(static_cast<size_t>(std::min(kBlockBytes, place.bytes)));
  uint32_t crc32c = 0;
  for (int64_t at = 0; at < place.bytes; at += kBlockBytes) {
    const int64_t bytes = std::min(kBlockBytes, place.bytes - at);
    SOK_RETURN_IF_ERROR(from->ReadAt(place.offset + at, block.data(), bytes));
    crc32c = CombineCrc32c(crc32c, Crc32c(block.data(), bytes), bytes);
    SOK_RETURN_IF_ERROR(data_->WriteAt(offset + at, block.data(), bytes));
  }
  // That of strings is not of their bytes; TensorFlow verifies it when it reads the copy.
  if (crc32c != place.crc32c && place.dtype != kStringDtype) {
    return DataLoss("the tensor '", name, "' is damaged: its checksum does not match");
  }
  return Add(name, MovedTensorPlace(entry, 0, offset));
}

Status PartWriter::Add(const std::string& name, std::string entry) {
  if (index_.entries.emplace(name, std::move(entry)).second) return OkStatus();
  return FailedPrecondition("the checkpoint '", prefix_, "' would have two tensors '", name, "'");
}

Status PartWriter::Finish() {
  complete_ = windows_.size();
  SOK_RETURN_IF_ERROR(WriteComplete());
  SOK_RETURN_IF_ERROR(data_->Sync());
  // Only the next stage of the same save reads it, so it need not be synced.
  SOK_ASSIGN_OR_RETURN(auto file, files_.Create(IndexPath(prefix_)));
  const std::string bytes = EncodeTensorIndex(index_);
  return file->WriteAt(0, bytes.data(), static_cast<int64_t>(bytes.size()));
}

ArrayWriter::ArrayWriter(PartWriter* part, std::string name, const ArrayType& type)
    : part_(*part), name_(std::move(name)) {
  array_.type = type;
  const int64_t bytes = array_.bytes();
  array_.crc32c.reserve(static_cast<size_t>(BlocksOf(bytes)));
  if (IsSmall()) {
    part_.NoteComplete();
    ++part_.unfinished_;
    // An empty array at the end must not begin after it.
    pieces_ = part_.ReserveInWindows(bytes, bytes == 0 ? 1 : kPage, &offset_);
    return;
  }
  offset_ = part_.Reserve(bytes, bytes < kLargeArray ? kPage : kBlockBytes);
  if (part_.spare_.empty()) {
    // Not std::make_unique, which would fill it.
    block_.reset(new char[static_cast<size_t>(kBlockBytes)]);
  } else {
    block_ = std::move(part_.spare_.back());
    part_.spare_.pop_back();
  }
}

Span<char> ArrayWriter::Room() const {
  if (!IsSmall()) return Span<char>(block_.get(), std::min(kBlockBytes, array_.bytes() - written_));
  return pieces_.empty() ? Span<char>() : pieces_.front();
}

Status ArrayWriter::Write(const void* data, int64_t bytes) {
  if (bytes > array_.bytes() - written_ - held_) return Internal("'", name_, "' got more bytes than it has");
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const Span<char> room = Room();
    const int64_t count = std::min(bytes, room.size() - held_);
    std::memcpy(room.data() + held_, next, static_cast<size_t>(count));
    held_ += count;
    next += count;
    bytes -= count;
    // The last block too, so that arrays of one block are written at the same time.
    if (held_ == room.size()) SOK_RETURN_IF_ERROR(Flush());
  }
  return OkStatus();
}

Status ArrayWriter::WriteFromEach(Span<const float* const> items, int64_t first, int64_t count) {
  const FloatType type = array_.type.dtype == DtypeOf(FloatType::kFloat16)    ? FloatType::kFloat16
                         : array_.type.dtype == DtypeOf(FloatType::kBfloat16) ? FloatType::kBfloat16
                                                                              : FloatType::kFloat32;
  const RecordLayout numbers(count, RecordFormat{type});
  const int64_t bytes = numbers.weight_bytes();
  std::vector<char> divided;  // an item for which there is room in part
  const int64_t ahead = PrefetchDistance(count);
  int64_t i = 0;
  while (i < items.size()) {
    // Whole items that leave room.
    const Span<char> room = Room();
    const int64_t end = std::min(items.size(), i + (room.size() - held_ - 1) / bytes);
    char* to = room.data() + held_;
    for (; i < end; ++i, to += bytes) {
      PrefetchFloats(items[std::min(i + ahead, items.size() - 1)] + first, count);
      if (type == FloatType::kFloat32) {
        CopyItem(to, items[i] + first, bytes);
      } else {
        numbers.WriteWeights(items[i] + first, to);
      }
    }
    held_ = to - room.data();
    if (i == items.size()) break;
    const void* item = items[i++] + first;
    if (type != FloatType::kFloat32) {
      divided.resize(static_cast<size_t>(bytes));
      numbers.WriteWeights(static_cast<const float*>(item), divided.data());
      item = divided.data();
    }
    SOK_RETURN_IF_ERROR(Write(item, bytes));
  }
  return OkStatus();
}

Status ArrayWriter::Flush() {
  const Span<char> full = Room();
  const uint32_t crc32c = Crc32c(full.data(), held_);
  crc32c_ = CombineCrc32c(crc32c_, crc32c, held_);
  if (IsSmall()) {
    array_.crc32c.assign(1, crc32c_);
    pieces_.erase(pieces_.begin());
  } else {
    array_.crc32c.push_back(crc32c);
    SOK_RETURN_IF_ERROR(part_.data_->WriteAt(offset_ + written_, full.data(), held_));
  }
  written_ += held_;
  held_ = 0;
  return OkStatus();
}

Status ArrayWriter::Finish() {
  if (written_ != array_.bytes()) {
    return Internal("'", name_, "' got ", written_ + held_, " of ", array_.bytes(), " bytes");
  }
  if (IsSmall()) {
    --part_.unfinished_;
  } else {
    part_.spare_.push_back(std::move(block_));
  }
  TensorPlace place;
  place.dtype = array_.type.dtype;
  place.shape = array_.type.shape;
  place.offset = offset_;
  place.bytes = written_;
  place.crc32c = crc32c_;
  return part_.Add(name_, EncodeTensorPlace(place));
}

namespace {

// Fills a block of an array that no file has.
void FillBlock(const PlacedArray& array, int64_t begin, int64_t bytes, char* block) {
  if (array.fill.has_value()) {
    for (int64_t at = 0; at < bytes; at += sizeof(float))
      std::memcpy(block + at, &*array.fill, sizeof(float));
    return;
  }
  int64_t next = *array.first + begin / 8 * array.increase;
  for (int64_t at = 0; at < bytes; at += 8, next += array.increase)
    std::memcpy(block + at, &next, sizeof(next));
}

}  // namespace

Status DamagedBytes(const std::string& path, int64_t begin, int64_t bytes) {
  return DataLoss("'", path, "' is damaged: the checksum of its bytes [", begin, ", ", begin + bytes,
                  ") does not match");
}

Status ReadNumbers(FileReader* file, const std::string& path, const PlacedArray& array, int64_t begin,
                   int64_t bytes, char* to, uint32_t* crc32c) {
  const int64_t item = ItemBytes(array.array.type.dtype);
  const int64_t stored = array.stored_item_bytes();
  const bool is_same = array.stored_as.empty() && array.stored_columns == 1;
  const int64_t at_once = is_same ? bytes / item : std::max<int64_t>(kBlockBytes / stored, 1);
  std::vector<char> scratch;
  for (int64_t next = 0; next < bytes / item; next += at_once) {
    const int64_t count = std::min(at_once, bytes / item - next);
    if (!is_same) scratch.resize(static_cast<size_t>(count * stored));
    char* const read = is_same ? to : scratch.data();
    SOK_RETURN_IF_ERROR(file->ReadAt(array.offset + (begin / item + next) * stored, read, count * stored));
    if (crc32c != nullptr) *crc32c = CombineCrc32c(*crc32c, Crc32c(read, count * stored), count * stored);
    if (is_same) continue;
    SOK_RETURN_IF_ERROR(ConvertNumbers(path, array.stored_as, read, array.stored_columns, count,
                                       array.array.type.dtype, to + next * item));
  }
  return OkStatus();
}

Status ReadBlock(FileReader* file, const std::string& path, const PlacedArray& array, int64_t number,
                 char* block, uint32_t* crc32c) {
  int64_t begin = number * kBlockBytes;
  int64_t bytes = std::min(kBlockBytes, array.array.bytes() - begin);
  if (!array.has_file()) {
    FillBlock(array, begin, bytes, block);
    return OkStatus();
  }
  if (!array.array.crc32c.empty()) {
    SOK_RETURN_IF_ERROR(file->ReadAt(array.offset + begin, block, bytes));
    if (Crc32c(block, bytes) == array.array.crc32c[static_cast<size_t>(number)]) return OkStatus();
  } else {
    const bool is_last = begin + bytes == array.array.bytes();
    SOK_RETURN_IF_ERROR(ReadNumbers(file, path, array, begin, bytes, block, crc32c));
    if (crc32c == nullptr || !is_last || *crc32c == array.whole_crc32c.value_or(*crc32c)) return OkStatus();
    begin = 0;
    bytes = array.stored_bytes();
  }
  return DamagedBytes(path, begin, bytes);
}

void ReadBlockAhead(FileReader* file, const PlacedArray& array, int64_t number) {
  const int64_t begin = number * kBlockBytes;
  if (!array.has_file() || begin >= array.array.bytes()) return;
  const int64_t item = ItemBytes(array.array.type.dtype);
  const int64_t bytes = std::min(kBlockBytes, array.array.bytes() - begin);
  file->ReadAhead(array.offset + begin / item * array.stored_item_bytes(),
                  bytes / item * array.stored_item_bytes());
}

StatusOr<std::unique_ptr<ArrayReader>> ArrayReader::Open(std::shared_ptr<FileReader> file,
                                                         const std::string& path, const PlacedArray& array) {
  // Allocates nothing of a size that the index gives before the file has that size.
  const bool fits = array.offset <= file->size() && array.stored_bytes() <= file->size() - array.offset;
  if (!fits && array.has_file()) {
    return DataLoss("'", path, "' has ", file->size(), " bytes, and ends before its tensor '", array.name,
                    "' does");
  }
  return std::unique_ptr<ArrayReader>(new ArrayReader(std::move(file), StrCat(path, ":", array.name), array));
}

Status ArrayReader::NextBlock() {
  const int64_t begin = next_block_ * kBlockBytes;
  const SavedArray& array = array_.array;
  if (begin >= array.bytes()) return DataLoss("'", path_, "' ended early");
  const int64_t bytes = std::min(kBlockBytes, array.bytes() - begin);
  // The first block is the largest. Not std::make_unique, which would fill it.
  if (block_ == nullptr) block_.reset(new char[static_cast<size_t>(bytes)]);
  at_ = held_ = 0;
  ReadBlockAhead(file_.get(), array_, next_block_ + 1);
  SOK_RETURN_IF_ERROR(ReadBlock(file_.get(), path_, array_, next_block_, block_.get(), &crc32c_));
  held_ = bytes;
  ++next_block_;
  return OkStatus();
}

Status ArrayReader::Read(void* data, int64_t bytes) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    if (at_ == held_) SOK_RETURN_IF_ERROR(NextBlock());
    const int64_t count = std::min(bytes, held_ - at_);
    if (next != nullptr) {
      std::memcpy(next, block_.get() + at_, static_cast<size_t>(count));
      next += count;
    }
    at_ += count;
    bytes -= count;
  }
  return OkStatus();
}

}  // namespace sok
