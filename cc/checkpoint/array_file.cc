#include "cc/checkpoint/array_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cc/checkpoint/crc32c.h"

namespace sok {
namespace {

constexpr int64_t kPage = 4096;

}  // namespace

StatusOr<std::unique_ptr<PartWriter>> PartWriter::Create(Files& files, const std::string& prefix) {
  auto data = files.Create(DataPath(prefix, 0, 1));
  SOK_RETURN_IF_ERROR(data.status());
  return std::unique_ptr<PartWriter>(new PartWriter(files, prefix, std::move(data.value())));
}

int64_t PartWriter::Reserve(int64_t bytes, int64_t alignment) {
  const int64_t offset = (size_ + alignment - 1) / alignment * alignment;
  size_ = offset + bytes;
  return offset;
}

std::unique_ptr<ArrayWriter> PartWriter::NewArray(const std::string& name, const ArrayType& type) {
  const int64_t bytes = DataBytes(type);
  // An empty array at the end must not begin after it.
  const int64_t offset = Reserve(bytes, bytes == 0 ? 1 : kPage);
  return std::unique_ptr<ArrayWriter>(new ArrayWriter(this, name, type, offset));
}

Status PartWriter::AddString(const std::string& name, std::string_view text) {
  const std::string bytes = EncodeStringTensor(text);
  TensorPlace place;
  place.dtype = kStringDtype;
  place.bytes = static_cast<int64_t>(bytes.size());
  place.offset = Reserve(place.bytes, 1);
  place.crc32c = StringTensorCrc32c(text);
  SOK_RETURN_IF_ERROR(Add(name, EncodeTensorPlace(place)));
  return data_->WriteAt(place.offset, bytes.data(), place.bytes);
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
  SOK_RETURN_IF_ERROR(data_->Sync());
  // Only the next stage of the same save reads it, so it need not be synced.
  auto file = files_.Create(IndexPath(prefix_));
  SOK_RETURN_IF_ERROR(file.status());
  const std::string bytes = EncodeTensorIndex(index_);
  return file.value()->WriteAt(0, bytes.data(), static_cast<int64_t>(bytes.size()));
}

ArrayWriter::ArrayWriter(PartWriter* part, std::string name, const ArrayType& type, int64_t offset)
    : part_(*part), name_(std::move(name)), offset_(offset) {
  array_.type = type;
  if (part_.spare_.empty()) {
    // Not std::make_unique, which would fill it.
    block_.reset(new char[static_cast<size_t>(kBlockBytes)]);
  } else {
    block_ = std::move(part_.spare_.back());
    part_.spare_.pop_back();
  }
  array_.crc32c.reserve(static_cast<size_t>(BlocksOf(array_.bytes())));
}

Status ArrayWriter::Write(const void* data, int64_t bytes) {
  if (bytes > array_.bytes() - written_ - held_) return Internal("'", name_, "' got more bytes than it has");
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const int64_t room = std::min(kBlockBytes, array_.bytes() - written_) - held_;
    const int64_t count = std::min(bytes, room);
    std::memcpy(block_.get() + held_, next, static_cast<size_t>(count));
    held_ += count;
    next += count;
    bytes -= count;
    // The last block too, so that arrays of one block are written at the same time.
    if (count == room) SOK_RETURN_IF_ERROR(Flush());
  }
  return OkStatus();
}

Status ArrayWriter::WriteFromEach(Span<const float* const> items, int64_t first, int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  int64_t i = 0;
  while (i < items.size()) {
    // Whole items that leave room in the block.
    const int64_t room = std::min(kBlockBytes, array_.bytes() - written_) - held_;
    const int64_t end = std::min(items.size(), i + (room - 1) / bytes);
    char* to = block_.get() + held_;
    for (; i < end; ++i, to += bytes) std::memcpy(to, items[i] + first, static_cast<size_t>(bytes));
    held_ = to - block_.get();
    if (i < items.size()) SOK_RETURN_IF_ERROR(Write(items[i++] + first, bytes));
  }
  return OkStatus();
}

Status ArrayWriter::Flush() {
  const uint32_t crc32c = Crc32c(block_.get(), held_);
  array_.crc32c.push_back(crc32c);
  crc32c_ = CombineCrc32c(crc32c_, crc32c, held_);
  SOK_RETURN_IF_ERROR(part_.data_->WriteAt(offset_ + written_, block_.get(), held_));
  written_ += held_;
  held_ = 0;
  return OkStatus();
}

Status ArrayWriter::Finish() {
  if (written_ != array_.bytes()) {
    return Internal("'", name_, "' got ", written_ + held_, " of ", array_.bytes(), " bytes");
  }
  part_.spare_.push_back(std::move(block_));
  TensorPlace place;
  place.dtype = array_.type.dtype;
  place.shape = array_.type.shape;
  place.offset = offset_;
  place.bytes = written_;
  place.crc32c = crc32c_;
  return part_.Add(name_, EncodeTensorPlace(place));
}

StatusOr<std::unique_ptr<ArrayReader>> ArrayReader::Open(std::shared_ptr<FileReader> file,
                                                         const std::string& path, const PlacedArray& array) {
  // Allocates nothing of a size that the index gives before the file has that size.
  if (array.offset > file->size() || array.array.bytes() > file->size() - array.offset) {
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
  SOK_RETURN_IF_ERROR(file_->ReadAt(array_.offset + begin, block_.get(), bytes));
  if (Crc32c(block_.get(), bytes) != array.crc32c[static_cast<size_t>(next_block_)]) {
    return DataLoss("'", path_, "' is damaged: the checksum of its bytes [", begin, ", ", begin + bytes,
                    ") does not match");
  }
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
