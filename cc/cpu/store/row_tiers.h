// Tables larger than memory: which rows are in memory, and which on disk.
#ifndef SOK_CC_CPU_STORE_ROW_TIERS_H_
#define SOK_CC_CPU_STORE_ROW_TIERS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/store/slabs.h"
#include "cc/disk/row_file.h"
#include "cc/table/tier_options.h"

namespace sok {

// What a caller does with rows that it brings up.
enum class RowUse {
  kRead,   // reads them; a copy on disk stays valid
  kScan,   // reads them once, with all others: they leave memory before rows that lookups use
  kWrite,  // reads and writes them
  kNew,    // writes them anew: what they were is not read
};

// Rows in memory are in frames: records numbered from 0. Each row that was brought up once has a frame or a
// place in a RowFile. When frames run out, rows leave them: the least recently used ones or, by frequency,
// the least often used ones, both nearly. Only rows that were written to since they came up are
// written to the file.
//
// Rows that a call brings up stay in memory until the next BeginCall. If they are more than the limit, there
// are more frames, for good.
//
// Thread safety: const members may run at the same time. Move-only.
class RowTiers {
 public:
  // A limit of `options.memory_bytes` for records of `record_bytes`, but at least one. Errors are those of
  // RowFile::Create.
  static StatusOr<std::unique_ptr<RowTiers>> Create(const TierOptions& options, int64_t record_bytes);

  // Makes rows [0, rows) addressable. ResourceExhausted if memory runs out.
  Status Reserve(int64_t rows) { return where_.Reserve(rows); }
  int64_t rows() const { return where_.rows(); }

  // Rows that were brought up before may leave memory.
  void BeginCall() { ++call_; }

  // Brings rows to frames. `frames` is the memory of all frames. Negative numbers are no rows. A row that was
  // never brought up is zeros. Errors are those of RowFile, and of memory: no row has changed then.
  Status BringUp(Executor& executor, Span<const int64_t> rows, RowUse use, Slabs* frames);

  // Asks the disk for those of the rows that are there, which a BringUp will need soon: RowFile::AskAhead.
  // Moves no row.
  void AskAhead(Executor& executor, Span<const int64_t> rows);

  // Makes free at least `n` frames, so that the next BringUp of as many new rows cannot fail. Errors as for
  // BringUp.
  Status FreeFrames(Executor& executor, int64_t n, Slabs* frames);

  // The frame of a row that was brought up since BeginCall.
  int64_t frame(int64_t row) const { return where_[row] - 1; }
  // Whether the row was ever brought up, and not forgotten since.
  bool is_known(int64_t row) const { return where_[row] != kNowhere; }
  // The row's contents are not needed any more.
  void Forget(int64_t row);

  // How many rows may be brought up at once within the limit.
  int64_t limit() const { return limit_; }
  int64_t bytes() const { return where_.bytes() + static_cast<int64_t>(frames_.capacity() * sizeof(Frame)); }
  TierCounts counts() const;
  const RowFile& file() const { return *file_; }

 private:
  // where_: a frame's number + 1, or -(a place + 1).
  static constexpr int64_t kNowhere = 0;
  static constexpr int64_t kNone = -1;

  struct alignas(32) Frame {  // two in a cache line
    int64_t row = kNone;
    int64_t place = kNone;  // of a copy on disk that equals the row
    int64_t call = 0;       // the last one that needs the row
    uint8_t uses = 0;       // since the clock's last turns: see cc/disk/clock.h
  };

  RowTiers(std::unique_ptr<RowFile> file, int64_t limit, bool by_frequency);

  // The place of the row's copy on disk, or kNone.
  int64_t CopyOf(int64_t row) const;
  void SetCopy(int64_t row, int64_t place);
  // Notes which rows are in memory, and returns the others.
  std::vector<int64_t> UsePresent(Span<const int64_t> rows, RowUse use);
  // Notes that a row in memory is used.
  void Use(Frame* frame, RowUse use);
  void FreeCopy(Frame* frame);
  // At most `n` frames whose rows leave memory.
  std::vector<int64_t> Victims(int64_t n);
  Status SendDown(Executor& executor, Span<const int64_t> victims, const Slabs& frames);

  std::unique_ptr<RowFile> file_;
  const int64_t limit_;
  const bool by_frequency_;
  RowColumn<int64_t> where_;
  std::vector<Frame> frames_;
  std::vector<int64_t> free_;  // frames without a row
  int64_t hand_ = 0;           // the frame before the next one to look at
  int64_t call_ = 1;
  TierCounts counts_;
};

}  // namespace sok

#endif  // SOK_CC_CPU_STORE_ROW_TIERS_H_
