// Updates a table's admission filter after a training lookup.
#ifndef SOK_CUDA_TABLE_COMMIT_ADMISSION_H_
#define SOK_CUDA_TABLE_COMMIT_ADMISSION_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"
#include "cuda/table/admit_ids.h"
#include "cuda/table/device_table.h"
#include "cuda/table/directory_rows.h"

namespace sok {

// Numbers of ids of one table, in the group's numbering.
struct ListedIds {
  const int32_t* which = nullptr;
  int64_t n = 0;
};

// What a lookup knows about its ids in one table. Arrays are on the device; those of ids are indexed by their
// number in the group.
struct FilteredLookup {
  const int64_t* keys = nullptr;
  const int32_t* counts = nullptr;
  const int64_t* rows = nullptr;
  Outcomes outcomes;
  ListedIds absent;    // had no row before the lookup
  ListedIds admitted;  // those of them that have one now
  ListedIds gone;      // kAdmittedFromWaiting
  ListedIds fresh;     // kWaitsNew
};

// AdmissionFilter::Commit: counts ids that have no row, removes admitted ids from the waiting ones, and moves
// their counts to their rows. In two calls, so that everything that needs memory comes before the table
// changes. Move-only.
class AdmissionCommit {
 public:
  // Allocates what Commit needs; keys and outcomes are known by now. The table's filter has reserved room
  // (DeviceWaiting::Reserve), and does not change until Commit. ResourceExhausted if `scratch` runs out of
  // memory.
  Status Prepare(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                 const FilteredLookup& lookup, DeviceTable* table);
  // Call it once the rows of admitted ids have been inserted, and are in lookup.rows.
  Status Commit(cudaStream_t stream);

 private:
  Status CommitWaiting(cudaStream_t stream);

  FilteredLookup lookup_;
  DeviceTable* table_ = nullptr;
  // With waiting ids: places of the ids that are gone and room for their keys, keys and places of those that
  // are fresh, and places of all ids without a row before the lookup.
  DeviceBuffer<int64_t> memory_;
  DeviceBuffer<char> uploaded_;
  int64_t* gone_places_ = nullptr;
  int64_t* gone_keys_ = nullptr;
  NewRows fresh_;
  int64_t* places_ = nullptr;
};

}  // namespace sok

#endif  // SOK_CUDA_TABLE_COMMIT_ADMISSION_H_
