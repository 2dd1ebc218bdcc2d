// The disk below a table's memory: records in a file.
#ifndef SOK_CC_DISK_ROW_FILE_H_
#define SOK_CC_DISK_ROW_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/function_ref.h"
#include "cc/base/guarded_copy.h"
#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

// Records of one size in a file without a name, which ends with the process: after a kill nothing is left,
// and nobody else's file can be taken for it. It is not a durable copy: nothing is synced.
//
// The file is a log in segments of about 4 MiB. Append writes records one behind the other, which a disk
// does many times as fast as writes at random; each gets a place, its number in the file. A segment whose
// records were all freed is used again, the last freed first: its pages are likely to be in memory still, and
// to write to these takes a tenth of the time of new ones. A few such segments are kept; what others take on
// the disk is given back. Compact makes such segments, so that the file has at most about half
// as many records again as are in use.
//
// Reads copy from a map of the file, which takes a third of the time of a call for each record. The map's
// pages are the file's in memory, which the system can take back. After a page had to be read from the disk,
// calls ask for all that they will read before they read the first, so that the disk works on many at once.
// Where a file cannot be mapped, calls read.
//
// Each record is stored with its row number and checksum. One that comes back as another is DataLoss. Other
// errors are those of FileError. All name the folder.
//
// Move-only. Thread safety: none; calls use the executor's threads.
class RowFile {
 public:
  static constexpr int64_t kSegmentBytes = int64_t{4} << 20;

  // A file in `folder`, which is made if it is missing, for records of `record_bytes`. Without `maps`, calls
  // read.
  static StatusOr<std::unique_ptr<RowFile>> Create(const std::string& folder, int64_t record_bytes,
                                                   int64_t segment_bytes = kSegmentBytes, bool maps = true);
  ~RowFile();
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  // Writes the records of rows[i], which are at record(i), and sets places[i]. After an error the file has
  // none of them.
  Status Append(Executor& executor, Span<const int64_t> rows, FunctionRef<const char*(int64_t i)> record,
                Span<int64_t> places);

  // Reads the records of rows[i] at places[i] to to(i). After an error they are undefined.
  Status Read(Executor& executor, Span<const int64_t> rows, Span<const int64_t> places,
              FunctionRef<char*(int64_t i)> to);

  // Asks the disk for the records at `places`, which a Read will need soon, and does not wait for them. Does
  // nothing if the last calls of Read found all in memory.
  void AskAhead(Executor& executor, Span<const int64_t> places);
  bool asks_ahead() const { return asks_ahead_ > 0; }

  // Frees the place of a record.
  void Free(int64_t place);

  // Moves records to the end of the file until at most about a third of it is of freed ones. place(row) is
  // the place of a row now, or negative; moved(row, place) says its new one. After an error each record has
  // one place, but not all that can be moved were.
  Status Compact(Executor& executor, FunctionRef<int64_t(int64_t row)> place,
                 FunctionRef<void(int64_t row, int64_t place)> moved);

  int64_t records() const { return records_; }  // in use
  int64_t bytes() const;                        // on the disk: of segments in use, and kept to be used again
  int descriptor() const { return descriptor_; }

 private:
  struct Header {
    int64_t row;
    uint32_t checksum;  // of the record
    uint32_t padding;
  };

  RowFile(std::string folder, int64_t record_bytes, int64_t segment_bytes, bool maps);

  Status Open();
  int64_t OffsetOf(int64_t place) const { return place * stride_; }
  int64_t SegmentOf(int64_t place) const { return place / per_segment_; }
  int64_t InUse() const { return static_cast<int64_t>(used_.size() - free_.size()); }  // segments
  // Gives the next place away.
  StatusOr<int64_t> TakePlace();
  // Begins a segment: a freed one, or a new one at the end of the file.
  Status BeginSegment();
  // Frees a segment without records in use.
  void Release(int64_t segment);
  // Maps at least the first `bytes` of the file, if it can be.
  void Map(int64_t bytes);
  // Writes records to new places. stored(begin, end, to) sets what is stored for [begin, end), and takes a
  // nanosecond for `bytes_per_ns`. After an error the file has none of them.
  Status Write(Executor& executor, Span<int64_t> places,
               FunctionRef<Status(int64_t begin, int64_t end, char* to)> stored, int64_t bytes_per_ns);
  Status ReadRange(Span<const int64_t> rows, Span<const int64_t> places, FunctionRef<char*(int64_t i)> to,
                   int64_t begin, int64_t end) const;
  // Does work(begin, end) on ranges of [0, n), as ParallelFor, and notes whether it needed the disk.
  void NoteDiskReads(Executor& executor, int64_t n, int64_t ns,
                     FunctionRef<void(int64_t begin, int64_t end)> work);
  Status ReadRecord(const GuardedCopies& copies, int64_t row, int64_t place, char* record) const;
  // Reads the first `bytes` of what is stored at a place.
  Status ReadStored(const GuardedCopies& copies, int64_t place, int64_t bytes, void* to) const;
  // Frees the emptiest segment that is full.
  Status EmptySegment(Executor& executor, FunctionRef<int64_t(int64_t row)> place,
                      FunctionRef<void(int64_t row, int64_t place)> moved);
  Status WriteAt(int64_t offset, const char* data, int64_t bytes) const;
  Status ReadAt(int64_t offset, void* to, int64_t bytes) const;

  const std::string folder_;
  const int64_t record_bytes_;
  const int64_t stride_;       // bytes from one record to the next: a header and a record
  const int64_t per_segment_;  // records
  int descriptor_ = -1;
  std::vector<int64_t> used_;  // by segment: records in use
  std::vector<int64_t> free_;  // segments without any; the last freed last
  int64_t given_back_ = 0;     // the first ones of free_, which take no disk
  int64_t segment_ = -1;       // that is being filled
  int64_t next_ = 0;           // the next place in it, counted from its begin
  int64_t records_ = 0;
  char* map_ = nullptr;
  int64_t mapped_ = 0;  // bytes of map_, which goes on beyond the end of the file
  bool can_map_;
  // Reads that will ask ahead: some more after one that needed the disk.
  int asks_ahead_ = 0;
};

}  // namespace sok

#endif  // SOK_CC_DISK_ROW_FILE_H_
