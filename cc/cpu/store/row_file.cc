#include "cc/cpu/store/row_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cc/base/crc32c.h"
#include "cc/base/file_error.h"
#include "cc/base/lowest_error.h"

namespace sok {
namespace {

// Records are written in ranges of at most this size. More would not make the disk faster.
constexpr int64_t kWriteBytes = int64_t{1} << 20;
// What the copy and the checksum of a byte take, and a call of the operating system.
constexpr int64_t kBytesPerNs = 2;
constexpr int64_t kCallNs = 2000;

// Only for this process and its owner, whatever the umask.
constexpr mode_t kMode = 0600;

}  // namespace

StatusOr<std::unique_ptr<RowFile>> RowFile::Create(const std::string& folder, int64_t record_bytes,
                                                   int64_t segment_bytes) {
  SOK_RETURN_IF_ERROR(CheckPath(folder));
  std::unique_ptr<RowFile> file(new RowFile(folder, record_bytes, segment_bytes));
  SOK_RETURN_IF_ERROR(file->Open());
  return file;
}

RowFile::RowFile(std::string folder, int64_t record_bytes, int64_t segment_bytes)
    : folder_(std::move(folder)),
      record_bytes_(record_bytes),
      stride_(record_bytes + static_cast<int64_t>(sizeof(Header))),
      per_segment_(std::max<int64_t>(segment_bytes / stride_, 1)) {}

RowFile::~RowFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

Status RowFile::Open() {
  if (mkdir(folder_.c_str(), 0777) != 0 && errno != EEXIST) return FileError("make the folder", folder_);
  descriptor_ = open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode);
  if (descriptor_ >= 0) return OkStatus();
  // Not all file systems have files without a name.
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
    return FileError("make a file for rows in", folder_);
  }
  std::string path = folder_ + "/sok-rows-XXXXXX";
  descriptor_ = mkostemp(path.data(), O_CLOEXEC);
  if (descriptor_ < 0) return FileError("make a file for rows in", folder_);
  return unlink(path.c_str()) == 0 ? OkStatus() : FileError("remove", path);
}

int64_t RowFile::bytes() const {
  return static_cast<int64_t>(used_.size() - free_.size()) * per_segment_ * stride_;
}

Status RowFile::BeginSegment() {
  const bool again = !free_.empty();
  const int64_t segment = again ? free_.back() : static_cast<int64_t>(used_.size());
  const int64_t begin = OffsetOf(segment * per_segment_);
  const int64_t bytes = per_segment_ * stride_;
  // A full disk is an error now, and not when the kernel writes pages to it, if the file system can tell.
  const bool there = fallocate(descriptor_, 0, begin, bytes) == 0 ||
                     (errno == EOPNOTSUPP && (again || ftruncate(descriptor_, begin + bytes) == 0));
  if (!there) return FileError("write rows to a file in", folder_);
  if (again) {
    free_.pop_back();
  } else {
    used_.push_back(0);
  }
  const int64_t before = std::exchange(segment_, segment);
  if (before >= 0 && used_[before] == 0) Release(before);
  next_ = 0;
  return OkStatus();
}

void RowFile::Release(int64_t segment) {
  free_.push_back(segment);
  // Gives the disk back if the file system can. Otherwise the segment is only used again.
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, OffsetOf(segment * per_segment_),
            per_segment_ * stride_);
}

StatusOr<int64_t> RowFile::TakePlace() {
  if (segment_ < 0 || next_ == per_segment_) SOK_RETURN_IF_ERROR(BeginSegment());
  ++used_[segment_];
  ++records_;
  return segment_ * per_segment_ + next_++;
}

void RowFile::Free(int64_t place) {
  const int64_t segment = SegmentOf(place);
  --records_;
  if (--used_[segment] == 0 && segment != segment_) Release(segment);
}

Status RowFile::Append(Executor& executor, Span<const int64_t> rows,
                       FunctionRef<const char*(int64_t i)> record, Span<int64_t> places) {
  // Where ranges begin that are neighbours in the file.
  const int64_t most = std::max<int64_t>(kWriteBytes / stride_, 1);
  std::vector<int64_t> begins;
  int64_t taken = 0;
  Status status;
  for (; taken < rows.size(); ++taken) {
    const StatusOr<int64_t> place = TakePlace();
    status = place.status();
    if (!status.ok()) break;
    places[taken] = place.value();
    const bool follows = taken > 0 && places[taken] == places[taken - 1] + 1;
    if (!follows || taken - begins.back() == most) begins.push_back(taken);
  }
  begins.push_back(taken);
  LowestError error;
  if (status.ok()) {
    const int64_t ranges = static_cast<int64_t>(begins.size()) - 1;
    const int64_t ns = rows.size() * stride_ / kBytesPerNs / std::max<int64_t>(ranges, 1);
    executor.ParallelFor(ranges, kCallNs + ns, [&](int64_t first, int64_t last) {
      error.Add(
          first, WithinMemory([&]() -> Status {
            std::vector<char> buffer;
            for (int64_t range = first; range < last; ++range) {
              const int64_t begin = begins[range];
              SOK_RETURN_IF_ERROR(WriteRange(rows, record, begin, begins[range + 1], places[begin], &buffer));
            }
            return OkStatus();
          }));
    });
    status = error.status();
  }
  if (!status.ok()) {
    for (int64_t i = 0; i < taken; ++i) Free(places[i]);
  }
  return status;
}

Status RowFile::WriteRange(Span<const int64_t> rows, FunctionRef<const char*(int64_t i)> record,
                           int64_t begin, int64_t end, int64_t place, std::vector<char>* buffer) const {
  buffer->resize((end - begin) * stride_);
  char* at = buffer->data();
  for (int64_t i = begin; i < end; ++i, at += stride_) {
    const char* const from = record(i);
    const Header header = {rows[i], Crc32c(from, record_bytes_), 0};
    std::memcpy(at, &header, sizeof(header));
    std::memcpy(at + sizeof(header), from, record_bytes_);
  }
  return WriteAt(OffsetOf(place), buffer->data(), static_cast<int64_t>(buffer->size()));
}

Status RowFile::Read(Executor& executor, Span<const int64_t> rows, Span<const int64_t> places,
                     FunctionRef<char*(int64_t i)> to) const {
  const int64_t ns = kCallNs + record_bytes_ / kBytesPerNs;
  // All reads are asked for before the first is waited for, so that the disk works on many at once.
  executor.ParallelFor(rows.size(), kCallNs, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      posix_fadvise(descriptor_, OffsetOf(places[i]), stride_, POSIX_FADV_WILLNEED);
    }
  });
  LowestError error;
  executor.ParallelFor(rows.size(), ns, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) error.Add(i, ReadRecord(rows[i], places[i], to(i)));
  });
  return error.status();
}

Status RowFile::ReadRecord(int64_t row, int64_t place, char* record) const {
  Header header;
  const iovec parts[] = {{&header, sizeof(header)}, {record, static_cast<size_t>(record_bytes_)}};
  ssize_t count;
  do {
    count = preadv(descriptor_, parts, 2, OffsetOf(place));
  } while (count < 0 && errno == EINTR);
  if (count < 0) return FileError("read rows from a file in", folder_);
  if (count < stride_) {  // rare: a signal, or a file that became shorter
    std::vector<char> all(stride_);
    SOK_RETURN_IF_ERROR(ReadAt(OffsetOf(place), all.data(), stride_));
    std::memcpy(&header, all.data(), sizeof(header));
    std::memcpy(record, all.data() + sizeof(header), record_bytes_);
  }
  if (header.row == row && header.checksum == Crc32c(record, record_bytes_)) return OkStatus();
  return DataLoss("row ", row, " came back damaged from a file in '", folder_,
                  "'; restore the table from a checkpoint");
}

Status RowFile::Compact(Executor& executor, FunctionRef<int64_t(int64_t row)> place,
                        FunctionRef<void(int64_t row, int64_t place)> moved) {
  // A few segments may always be partly in use, so that small files are not moved around.
  constexpr int64_t kSpare = 4;
  while ((static_cast<int64_t>(used_.size() - free_.size()) - kSpare) * per_segment_ > 2 * records_) {
    SOK_RETURN_IF_ERROR(EmptySegment(executor, place, moved));
  }
  return OkStatus();
}

Status RowFile::EmptySegment(Executor& executor, FunctionRef<int64_t(int64_t row)> place,
                             FunctionRef<void(int64_t row, int64_t place)> moved) {
  int64_t emptiest = -1;
  for (int64_t segment = 0; segment < static_cast<int64_t>(used_.size()); ++segment) {
    if (segment == segment_ || used_[segment] == 0) continue;
    if (emptiest < 0 || used_[segment] < used_[emptiest]) emptiest = segment;
  }
  if (emptiest < 0) return OkStatus();
  std::vector<char> segment(per_segment_ * stride_);
  const int64_t first = emptiest * per_segment_;
  SOK_RETURN_IF_ERROR(ReadAt(OffsetOf(first), segment.data(), static_cast<int64_t>(segment.size())));
  std::vector<int64_t> rows;
  std::vector<const char*> records;
  for (int64_t i = 0; i < per_segment_; ++i) {
    const char* const at = segment.data() + i * stride_;
    Header header;
    std::memcpy(&header, at, sizeof(header));
    if (place(header.row) != first + i) continue;
    if (header.checksum != Crc32c(at + sizeof(header), record_bytes_)) continue;
    rows.push_back(header.row);
    records.push_back(at + sizeof(header));
  }
  const int64_t damaged = used_[emptiest] - static_cast<int64_t>(rows.size());
  if (damaged > 0) {
    return DataLoss(damaged, " rows came back damaged from a file in '", folder_,
                    "'; restore the table from a checkpoint");
  }
  std::vector<int64_t> places(rows.size());
  SOK_RETURN_IF_ERROR(Append(executor, rows, [&](int64_t i) { return records[i]; }, Span<int64_t>(places)));
  for (size_t i = 0; i < rows.size(); ++i) {
    Free(place(rows[i]));
    moved(rows[i], places[i]);
  }
  return OkStatus();
}

Status RowFile::WriteAt(int64_t offset, const char* data, int64_t bytes) const {
  while (bytes > 0) {
    const ssize_t written = pwrite(descriptor_, data, bytes, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return FileError("write rows to a file in", folder_);
    data += written;
    bytes -= written;
    offset += written;
  }
  return OkStatus();
}

Status RowFile::ReadAt(int64_t offset, char* data, int64_t bytes) const {
  while (bytes > 0) {
    const ssize_t count = pread(descriptor_, data, bytes, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("read rows from a file in", folder_);
    if (count == 0) return DataLoss("a file of rows in '", folder_, "' ended early");
    data += count;
    bytes -= count;
    offset += count;
  }
  return OkStatus();
}

}  // namespace sok
