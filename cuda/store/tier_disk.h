// The disk below a table on a GPU: the rows that neither memory has room for.
#ifndef SOK_CUDA_STORE_TIER_DISK_H_
#define SOK_CUDA_STORE_TIER_DISK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/function_ref.h"
#include "cc/base/host_device.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/disk/clock.h"
#include "cc/disk/row_file.h"
#include "cc/table/tier_options.h"
#include "cuda/base/allocators.h"
#include "cuda/base/transfers.h"

namespace sok {

// What a call does with rows that it brings up from the disk.
enum class DiskUse {
  kLookup,  // a use that counts
  kStep,    // a use that does not count, as that of the lookup before did, or that of a reader of all rows
  kNew,     // rows without contents, which are not read
  kAhead,   // none yet: the disk may begin to read what a call will need soon, and nothing moves
};

// A frame's use, in host and device memory: the last call that needed its row, and how often calls did since
// the clock last passed.
constexpr int kUseBits = 4;
constexpr uint32_t kMostUses = (uint32_t{1} << kUseBits) - 1;
constexpr uint32_t kUseCalls = (uint32_t{1} << (32 - kUseBits)) - 1;
static_assert(kMostUses == kMostFrameUses, "all tiers count as far");

// What precedes each record in host memory. Kernels and the host write it in turns.
struct alignas(16) HostFrame {
  int64_t row = -1;          // whose record follows; negative: none
  uint32_t use = 0;          // call << kUseBits | uses
  uint32_t has_content = 0;  // whether a call has needed the record
};

SOK_HOST_DEVICE HostFrame* FrameOf(char* record) { return reinterpret_cast<HostFrame*>(record) - 1; }

// Where a record is from now on, and where kernels look for it.
struct PlacedRecord {
  char** address = nullptr;
  int32_t* frame = nullptr;
  char* record = nullptr;
};

// The records of a table's rows in host memory are in frames, as many as the options give it memory for. If
// there are no more of them, rows go down to a RowFile: the least recently used ones or, by frequency, the
// least often used ones, both nearly (cc/disk/clock.h). Rows that a call needs stay until the next BeginCall.
// If they are more than the limit, there are more frames, for good.
//
// The host chooses the rows and moves them; kernels say which ones a call needs, and exchange rows in frames
// with rows in device memory. So each call of the host comes after a wait for all kernels on the table.
//
// Thread safety: none.
class TierDisk {
 public:
  // Errors are those of RowFile::Create.
  static StatusOr<std::unique_ptr<TierDisk>> Create(const TierOptions& options, int64_t record_bytes);

  // Rows that were needed before may go down.
  void BeginCall() { call_ = call_ % kUseCalls + 1; }
  // Whose threads read and write the file from now on; null: the caller's alone.
  void set_executor(Executor* executor) { executor_ = executor; }
  Executor* executor() const { return executor_; }
  // The number of the call, not 0, in as many bits as a frame's use has.
  uint32_t call() const { return call_; }

  // Adds frames: `n` of frame_bytes() each. They have the rows from `first` on, or none if that is negative.
  void AddFrames(char* memory, int64_t first, int64_t n);
  int64_t frames() const { return static_cast<int64_t>(records_.size()); }
  int64_t limit() const { return limit_; }
  int64_t frame_bytes() const { return static_cast<int64_t>(sizeof(HostFrame)) + record_bytes_; }

  // A record that is elsewhere now; null: it is on the disk.
  struct Moved {
    int64_t row;
    char* record;
  };

  // Gives frames to `rows`, which have none, and keeps `spare` more free, so that the next call for as many
  // new rows cannot fail. add_frames(n) must add frames beyond the limit. Appends to `moved` what has moved,
  // also after an error: those of RowFile, and of memory. No row has lost its record then.
  Status BringUp(std::vector<int64_t> rows, DiskUse use, int64_t spare,
                 FunctionRef<Status(int64_t n)> add_frames, std::vector<Moved>* moved);

  // RowFile::AskAhead for rows on disk.
  void AskAhead(Span<const int64_t> rows);

  // Whether rows have ever gone down.
  bool has_sent_down() const { return has_sent_down_; }
  // Changes whenever they do. No two disks of a process have the same number.
  int64_t version() const { return version_; }
  int64_t rows_read() const { return rows_read_; }
  void CountOnFrom(const TierDisk& other) { rows_read_ += other.rows_read_; }
  const RowFile& file() const { return *file_; }

  // What BringFromDisk sends and fetches with.
  struct Transfers {
    StagedUpload upload;
    RoundTrip round_trip;
    PinnedBuffer<PlacedRecord> placed;
  };
  Transfers& transfers() { return transfers_; }

 private:
  static constexpr int64_t kNowhere = -1;

  TierDisk(std::unique_ptr<RowFile> file, const TierOptions& options, int64_t record_bytes);

  Executor& threads() { return executor_ == nullptr ? inline_executor_ : *executor_; }
  int64_t PlaceOf(int64_t row) const;
  void SetPlace(int64_t row, int64_t place);
  // Makes at least `n` frames free.
  Status FreeFrames(int64_t n, FunctionRef<Status(int64_t n)> add_frames, std::vector<Moved>* moved);
  Status SendDown(Span<const int64_t> victims, std::vector<Moved>* moved);
  static int64_t NewVersion();

  std::unique_ptr<RowFile> file_;
  const int64_t record_bytes_;
  const int64_t limit_;
  const bool by_frequency_;
  InlineExecutor inline_executor_;
  Executor* executor_ = nullptr;
  uint32_t call_ = 1;
  bool has_sent_down_ = false;
  int64_t version_ = NewVersion();
  int64_t rows_read_ = 0;
  std::vector<char*> records_;   // of all frames
  std::vector<int64_t> free_;    // frames without a row
  std::vector<int64_t> places_;  // of rows on the disk, or kNowhere; rows beyond its end were never there
  int64_t hand_ = 0;
  Transfers transfers_;
};

}  // namespace sok

#endif  // SOK_CUDA_STORE_TIER_DISK_H_
