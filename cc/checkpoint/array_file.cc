#include "cc/checkpoint/array_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cc/checkpoint/checkpoint_path.h"

namespace sok {

ArrayWriter::ArrayWriter(std::unique_ptr<FileWriter> file, ArrayFile array)
    : file_(std::move(file)), array_(std::move(array)) {
  block_.reserve(static_cast<size_t>(std::min(kBlockBytes, array_.bytes)));
  array_.crc32.reserve(static_cast<size_t>(BlocksOf(array_.bytes)));
}

StatusOr<std::unique_ptr<ArrayWriter>> ArrayWriter::Create(Files& files, const std::string& folder,
                                                           const std::string& file, const ArrayType& type) {
  auto opened = files.Create(TableFile(files, folder, file));
  SOK_RETURN_IF_ERROR(opened.status());
  const std::string header = EncodeNpyHeader(type);
  ArrayFile array;
  array.file = file;
  array.type = type;
  array.bytes = static_cast<int64_t>(header.size()) + DataBytes(type);
  std::unique_ptr<ArrayWriter> writer(new ArrayWriter(std::move(opened.value()), std::move(array)));
  SOK_RETURN_IF_ERROR(writer->Write(header.data(), static_cast<int64_t>(header.size())));
  return writer;
}

Status ArrayWriter::Write(const void* data, int64_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const int64_t count = std::min(bytes, kBlockBytes - static_cast<int64_t>(block_.size()));
    block_.insert(block_.end(), next, next + count);
    next += count;
    bytes -= count;
    if (static_cast<int64_t>(block_.size()) == kBlockBytes) SOK_RETURN_IF_ERROR(Flush());
  }
  return OkStatus();
}

Status ArrayWriter::Flush() {
  const int64_t bytes = static_cast<int64_t>(block_.size());
  array_.crc32.push_back(Crc32(block_.data(), bytes));
  SOK_RETURN_IF_ERROR(file_->Write(block_.data(), bytes));
  written_ += bytes;
  block_.clear();
  return OkStatus();
}

Status ArrayWriter::Finish() {
  if (!block_.empty()) SOK_RETURN_IF_ERROR(Flush());
  if (written_ != array_.bytes) {
    return Internal("'", array_.file, "' got ", written_, " of ", array_.bytes, " bytes");
  }
  return file_->Sync();
}

ArrayReader::ArrayReader(std::string path, std::unique_ptr<FileReader> file, const ArrayFile& array)
    : path_(std::move(path)), file_(std::move(file)), array_(array) {}

StatusOr<std::unique_ptr<ArrayReader>> ArrayReader::Open(Files& files, const std::string& folder,
                                                         const ArrayFile& array) {
  const std::string path = TableFile(files, folder, array.file);
  auto file = files.Open(path);
  SOK_RETURN_IF_ERROR(file.status());
  // Allocates nothing of a size that the manifest gives before the file has that size.
  if (file.value()->size() != array.bytes) {
    return DataLoss("'", path, "' has ", file.value()->size(), " bytes, but its manifest says ", array.bytes);
  }
  std::unique_ptr<ArrayReader> reader(new ArrayReader(path, std::move(file.value()), array));
  const std::string header = EncodeNpyHeader(array.type);
  std::string found(header.size(), '\0');
  SOK_RETURN_IF_ERROR(reader->Read(found.data(), static_cast<int64_t>(found.size())));
  if (found != header) {
    return DataLoss("'", path, "' is not the .npy file of ", Describe(array.type),
                    " that its manifest lists");
  }
  return reader;
}

Status ArrayReader::NextBlock() {
  const int64_t begin = next_block_ * kBlockBytes;
  if (begin >= array_.bytes) return DataLoss("'", path_, "' ended early");
  block_.resize(static_cast<size_t>(std::min(kBlockBytes, array_.bytes - begin)));
  at_ = 0;
  const int64_t bytes = static_cast<int64_t>(block_.size());
  SOK_RETURN_IF_ERROR(file_->Read(block_.data(), bytes));
  if (Crc32(block_.data(), bytes) != array_.crc32[static_cast<size_t>(next_block_)]) {
    return DataLoss("'", path_, "' is damaged: the checksum of its bytes [", begin, ", ", begin + bytes,
                    ") does not match");
  }
  ++next_block_;
  return OkStatus();
}

Status ArrayReader::Read(void* data, int64_t bytes) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    if (at_ == static_cast<int64_t>(block_.size())) SOK_RETURN_IF_ERROR(NextBlock());
    const int64_t count = std::min(bytes, static_cast<int64_t>(block_.size()) - at_);
    if (next != nullptr) {
      std::memcpy(next, block_.data() + at_, static_cast<size_t>(count));
      next += count;
    }
    at_ += count;
    bytes -= count;
  }
  return OkStatus();
}

Status CheckArray(Files& files, const std::string& folder, const ArrayFile& array) {
  auto reader = ArrayReader::Open(files, folder, array);
  SOK_RETURN_IF_ERROR(reader.status());
  return reader.value()->Skip(DataBytes(array.type));
}

}  // namespace sok
