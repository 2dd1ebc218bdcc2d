// The rows of a group's distinct ids.
#ifndef SOK_CUDA_GROUP_MERGED_ROWS_H_
#define SOK_CUDA_GROUP_MERGED_ROWS_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/group/gpu_call.h"
#include "cuda/group/group_merge.h"
#include "cuda/table/admit_ids.h"
#include "cuda/table/commit_admission.h"
#include "cuda/table/device_table.h"
#include "cuda/table/insert_rows.h"

namespace sok {

// Finds the rows of a group's distinct ids, and in training inserts those that the tables admit. `memory` is
// the engine's, for what the group keeps. The caller holds the tables' locks (TablesAtWork), and fetches the
// words between Enqueue and Take. The group's training flag must not change in between.
class MergedRows {
 public:
  MergedRows(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables, MergedGroup* group,
             GpuScratch* scratch);

  // Enqueues work on the stream that finds the rows and decides about admission. It writes find_words() words
  // from group.words.absent_begin() on.
  Status Enqueue();
  // The same for a group that only reads: it needs to know which tables have ids without rows, but no list of
  // them.
  Status EnqueueReads();
  int64_t find_words() const { return LookupWords(nullptr, 0, num_tables()).find_size(has_filters_); }

  // Takes these words. Checks them, makes room, and enqueues the work that inserts rows and makes them
  // current; group.rows are references then. In training, a table's ids with rows come first. InvalidArgument
  // for an id that has no row in a table without hashing, which costs one more wait; ResourceExhausted if a
  // table is full or memory runs out. After an error either nothing has changed, or all tables have their new
  // rows and have counted their ids. (If the device is lost, nothing is known. With a disk, rows that were
  // evicted may be gone if scratch memory runs out.)
  Status Take(const int64_t* words);

  // For a group that only reads, if rows of its tables were inserted or erased after Enqueue: finds its rows
  // again, as row numbers, before Take. Waits for nothing.
  Status FindAgain();

  // Before Enqueue: lets disks below the tables begin to read the rows. Waits if a table has a disk.
  Status AskAhead();

 private:
  // The ids without rows, from the round trip: where those of each table begin.
  struct Found {
    std::vector<int64_t> absent;
    // Without filters `absent` are the admitted ids, and the others are empty.
    std::vector<int64_t> admitted;
    std::vector<int64_t> gone;
    std::vector<int64_t> fresh;

    int64_t NumAbsent(int64_t t) const { return absent[t + 1] - absent[t]; }
    int64_t NumAdmitted(int64_t t) const { return admitted[t + 1] - admitted[t]; }
  };

  Status EnqueueAdmission();
  // The tables' filters on the device, in memory that *uploaded owns.
  StatusOr<const FilterView*> UploadFilters(DeviceBuffer<char>* uploaded);
  Status NoRowFor(uint64_t u);
  // In training: inserts rows for ids that have none.
  Status Insert(const Found& found);
  Status CheckRoom(const Found& found) const;
  Status MakeRoom(const Found& found);
  // Chooses the rows that full tables evict.
  Status ChooseEvicted(const Found& found, std::vector<EvictedRows>* evicted);
  // What will update the tables' filters, with its memory.
  Status PrepareCommits(const Found& found, std::vector<AdmissionCommit>* commits);
  void CountIds(int64_t t, const Found& found);
  Status PutRowsFirst(const Found& found);
  // How many of the admitted ids' new rows of each table may have no place in memory.
  std::vector<int64_t> SpareRows(const Found& found) const;
  // Brings rows up to host memory that are on disk, with room for new ones, and gives new ones places.
  Status BringFromDisk(const std::vector<int64_t>& spare, DiskUse use);
  // Brings rows up to device memory that are in host memory.
  Status BringUp();
  std::vector<RowList> RowsOfTables() const;
  // Makes the rows current, and notes at which version of each optimizer.
  Status BringUpToDate();
  Status MakeReferences();
  // Makes group.read_rows, for admitted ids that read as the default value.
  Status ReadDefaults(const Found& found);

  SomeIds AdmittedIds() const;
  Outcomes OutcomesOfIds() const;
  cudaStream_t stream() const { return call_.stream(); }
  int num_tables() const { return static_cast<int>(tables_.size()); }

  GpuCall& call_;
  DeviceAllocator* memory_;
  std::vector<DeviceTable*> tables_;
  MergedGroup& group_;
  GpuScratch& scratch_;
  bool only_reads_ = false;
  bool has_filters_ = false;  // whether some table has admission, in training
};

}  // namespace sok

#endif  // SOK_CUDA_GROUP_MERGED_ROWS_H_
