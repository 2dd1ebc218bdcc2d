#include "cc/disk/row_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cc/base/crc32c.h"
#include "cc/base/prefetch.h"
#include "cc/base/printable.h"
#include "cc/base/shared_loop.h"

namespace sok {
namespace {

// Records are written in ranges of at most this size, which the cache of a core holds.
constexpr int64_t kWriteBytes = int64_t{256} << 10;
// What the copy and the checksum of a byte take, the copy alone, and a call of the operating system.
constexpr int64_t kBytesPerNs = 2;
constexpr int64_t kMovedBytesPerNs = 4;
constexpr int64_t kCallNs = 2000;
constexpr int64_t kAdviceNs = 400;
// After a call that needed the disk, so many ask ahead. If all is in memory that costs as much as reading it.
constexpr int kAsksAhead = 8;

// Only for this process and its owner, whatever the umask.
constexpr mode_t kMode = 0600;

// How often this thread read from a disk: pages that it waited for, and blocks that it asked for.
int64_t DiskReads() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_majflt + usage.ru_inblock : 0;
}

}  // namespace

StatusOr<std::unique_ptr<RowFile>> RowFile::Create(const std::string& folder, int64_t record_bytes,
                                                   int64_t segment_bytes, bool maps) {
  SOK_RETURN_IF_ERROR(CheckPath(folder));
  std::unique_ptr<RowFile> file(new RowFile(folder, record_bytes, segment_bytes, maps));
  SOK_RETURN_IF_ERROR(file->Open());
  return file;
}

RowFile::RowFile(std::string folder, int64_t record_bytes, int64_t segment_bytes, bool maps)
    : folder_(std::move(folder)),
      record_bytes_(record_bytes),
      stride_(record_bytes + static_cast<int64_t>(sizeof(Header))),
      per_segment_(std::max<int64_t>(segment_bytes / stride_, 1)),
      can_map_(maps && GuardedCopies::Exist()) {}

RowFile::~RowFile() {
  if (map_ != nullptr) munmap(map_, mapped_);
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
  return (static_cast<int64_t>(used_.size()) - given_back_) * per_segment_ * stride_;
}

Status RowFile::BeginSegment() {
  const bool again = !free_.empty();
  const int64_t segment = again ? free_.back() : static_cast<int64_t>(used_.size());
  const int64_t begin = OffsetOf(segment * per_segment_);
  const int64_t bytes = per_segment_ * stride_;
  const bool is_kept = static_cast<int64_t>(free_.size()) > given_back_;
  // A full disk is an error now, and not when the kernel writes pages to it, if the file system can tell.
  const bool there = is_kept || fallocate(descriptor_, 0, begin, bytes) == 0 ||
                     (errno == EOPNOTSUPP && (again || ftruncate(descriptor_, begin + bytes) == 0));
  if (!there) return FileError("write rows to a file in", folder_);
  if (again) {
    free_.pop_back();
    if (!is_kept) --given_back_;
  } else {
    used_.push_back(0);
    Map(begin + bytes);
  }
  const int64_t before = std::exchange(segment_, segment);
  if (before >= 0 && used_[before] == 0) Release(before);
  next_ = 0;
  return OkStatus();
}

void RowFile::Release(int64_t segment) {
  free_.push_back(segment);
  while (static_cast<int64_t>(free_.size()) - given_back_ > 1 + InUse() / 8) {
    // Gives the disk back if the file system can. Otherwise the segment is only used again.
    fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              OffsetOf(free_[given_back_++] * per_segment_), per_segment_ * stride_);
  }
}

void RowFile::Map(int64_t bytes) {
  if (!can_map_ || bytes <= mapped_) return;
  const int64_t wanted = std::max(2 * mapped_, bytes);
  void* const map = map_ == nullptr ? mmap(nullptr, wanted, PROT_READ, MAP_SHARED, descriptor_, 0)
                                    : mremap(map_, mapped_, wanted, MREMAP_MAYMOVE);
  can_map_ = map != MAP_FAILED;
  if (can_map_) {
    map_ = static_cast<char*>(map);
    mapped_ = wanted;
    // A page that must be read from the disk is read alone: its neighbors are of other rows.
    madvise(map_, mapped_, MADV_RANDOM);
  } else if (map_ != nullptr) {
    munmap(map_, mapped_);
    map_ = nullptr;
  }
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
  return Write(
      executor, places,
      [&](int64_t begin, int64_t end, char* to) {
        const int64_t floats = record_bytes_ / static_cast<int64_t>(sizeof(float));
        const int64_t ahead = PrefetchDistance(floats);
        for (int64_t i = begin; i < end; ++i, to += stride_) {
          if (i + ahead < end) PrefetchFloats(reinterpret_cast<const float*>(record(i + ahead)), floats);
          std::memcpy(to + sizeof(Header), record(i), record_bytes_);
          const Header header = {rows[i], Crc32c(to + sizeof(Header), record_bytes_), 0};
          std::memcpy(to, &header, sizeof(header));
        }
        return OkStatus();
      },
      kBytesPerNs);
}

Status RowFile::Write(Executor& executor, Span<int64_t> places,
                      FunctionRef<Status(int64_t begin, int64_t end, char* to)> stored,
                      int64_t bytes_per_ns) {
  // Where ranges begin that are neighbours in the file.
  const int64_t most = std::max<int64_t>(kWriteBytes / stride_, 1);
  std::vector<int64_t> begins;
  int64_t taken = 0;
  Status status;
  for (; taken < places.size(); ++taken) {
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
    const int64_t ns = taken * stride_ / bytes_per_ns / std::max<int64_t>(ranges, 1);
    executor.ParallelFor(ranges, kCallNs + ns, [&](int64_t first, int64_t last) {
      error.Add(
          first, WithinMemory([&]() -> Status {
            const std::unique_ptr<char[]> buffer(new char[std::min(most, taken) * stride_]);
            for (int64_t range = first; range < last; ++range) {
              const int64_t begin = begins[range];
              const int64_t end = begins[range + 1];
              SOK_RETURN_IF_ERROR(stored(begin, end, buffer.get()));
              SOK_RETURN_IF_ERROR(WriteAt(OffsetOf(places[begin]), buffer.get(), (end - begin) * stride_));
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

Status RowFile::Read(Executor& executor, Span<const int64_t> rows, Span<const int64_t> places,
                     FunctionRef<char*(int64_t i)> to) {
  AskAhead(executor, places);
  if (asks_ahead_ > 0) --asks_ahead_;
  LowestError error;
  const int64_t ns = record_bytes_ / kBytesPerNs + (map_ == nullptr ? kCallNs : 0);
  NoteDiskReads(executor, rows.size(), ns, [&](int64_t begin, int64_t end) {
    error.Add(begin, WithinMemory([&] { return ReadRange(rows, places, to, begin, end); }));
  });
  return error.status();
}

void RowFile::AskAhead(Executor& executor, Span<const int64_t> places) {
  if (asks_ahead_ == 0) return;
  NoteDiskReads(executor, places.size(), kAdviceNs, [&](int64_t begin, int64_t end) {
    for (const int64_t place : places.subspan(begin, end - begin)) {
      posix_fadvise(descriptor_, OffsetOf(place), stride_, POSIX_FADV_WILLNEED);
    }
  });
}

void RowFile::NoteDiskReads(Executor& executor, int64_t n, int64_t ns,
                            FunctionRef<void(int64_t begin, int64_t end)> work) {
  std::atomic<bool> read{false};
  executor.ParallelFor(n, ns, [&](int64_t begin, int64_t end) {
    const int64_t before = DiskReads();
    work(begin, end);
    if (DiskReads() != before) read = true;
  });
  if (read) asks_ahead_ = kAsksAhead;
}

Status RowFile::ReadRange(Span<const int64_t> rows, Span<const int64_t> places,
                          FunctionRef<char*(int64_t i)> to, int64_t begin, int64_t end) const {
  const GuardedCopies copies;
  // Records are anywhere in the map: as in LoopOverRows, their first lines are prefetched several at once,
  // and later the others.
  const int64_t floats = stride_ / static_cast<int64_t>(sizeof(float));
  const int64_t block = 2 * PrefetchDistance(floats);
  const auto at = [&](int64_t i) { return map_ + OffsetOf(places[i]); };
  const auto prefetch_first_lines = [&](int64_t first) {
    if (map_ == nullptr) return;
    for (int64_t i = first; i < std::min(end, first + block); ++i) Prefetch(at(i));
  };
  prefetch_first_lines(begin);
  for (int64_t first = begin; first < end; first += block) {
    prefetch_first_lines(first + block);
    for (int64_t i = first; i < std::min(end, first + block); ++i) {
      const int64_t next = i + block / 2;
      if (map_ != nullptr && next < end) PrefetchFloats(reinterpret_cast<const float*>(at(next)), floats);
      if (i + 2 < end) {
        PrefetchFloats<true>(reinterpret_cast<const float*>(to(i + 2)),
                             record_bytes_ / static_cast<int64_t>(sizeof(float)));
      }
      SOK_RETURN_IF_ERROR(ReadRecord(copies, rows[i], places[i], to(i)));
    }
  }
  return OkStatus();
}

Status RowFile::ReadRecord(const GuardedCopies& copies, int64_t row, int64_t place, char* record) const {
  Header header;
  const char* const at = map_ == nullptr ? nullptr : map_ + OffsetOf(place);
  if (at == nullptr || !copies.Copy(at, sizeof(header), &header) ||
      !copies.Copy(at + sizeof(header), record_bytes_, record)) {
    // If there is an error, a call says which.
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
  while ((InUse() - kSpare) * per_segment_ > records_ + records_ / 2) {
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
  const int64_t first = emptiest * per_segment_;
  posix_fadvise(descriptor_, OffsetOf(first), per_segment_ * stride_, POSIX_FADV_WILLNEED);
  std::vector<int64_t> rows;
  std::vector<int64_t> before;
  const GuardedCopies copies;
  for (int64_t at = first; at < first + per_segment_; ++at) {
    constexpr int64_t kAhead = 8;
    if (map_ != nullptr && at + kAhead < first + per_segment_) Prefetch(map_ + OffsetOf(at + kAhead));
    Header header;
    SOK_RETURN_IF_ERROR(ReadStored(copies, at, sizeof(header), &header));
    if (place(header.row) != at) continue;
    rows.push_back(header.row);
    before.push_back(at);
  }
  if (static_cast<int64_t>(rows.size()) != used_[emptiest]) {
    return DataLoss(used_[emptiest] - static_cast<int64_t>(rows.size()),
                    " rows came back damaged from a file in '", folder_,
                    "'; restore the table from a checkpoint");
  }
  // With their checksums, which tell later whether a record was damaged.
  std::vector<int64_t> places(rows.size());
  SOK_RETURN_IF_ERROR(Write(
      executor, Span<int64_t>(places),
      [&](int64_t begin, int64_t end, char* to) {
        const GuardedCopies guarded;
        for (int64_t i = begin; i < end; ++i, to += stride_) {
          SOK_RETURN_IF_ERROR(ReadStored(guarded, before[i], stride_, to));
        }
        return OkStatus();
      },
      kMovedBytesPerNs));
  for (size_t i = 0; i < rows.size(); ++i) {
    Free(before[i]);
    moved(rows[i], places[i]);
  }
  return OkStatus();
}

Status RowFile::ReadStored(const GuardedCopies& copies, int64_t place, int64_t bytes, void* to) const {
  if (map_ != nullptr && copies.Copy(map_ + OffsetOf(place), bytes, to)) return OkStatus();
  // If there is an error, a call says which.
  return ReadAt(OffsetOf(place), to, bytes);
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

Status RowFile::ReadAt(int64_t offset, void* to, int64_t bytes) const {
  char* data = static_cast<char*>(to);
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
