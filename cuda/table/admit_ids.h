// Which of a group's ids without a row get one in tables with admission: see cc/cpu/table/admission_filter.h.
#ifndef SOK_CUDA_TABLE_ADMIT_IDS_H_
#define SOK_CUDA_TABLE_ADMIT_IDS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/table/device_bloom.h"
#include "cuda/table/device_waiting.h"
#include "cuda/table/key_directory.h"

namespace sok {

// A table's filter.
struct FilterView {
  bool has_waiting = false;
  bool has_bloom = false;
  bool before_lookup = false;
  int64_t filter_freq = 0;
  WaitingView waiting;
  BloomView bloom;
};

// The decision about an id without a row. Without a filter the id is admitted.
enum class Outcome : int32_t {
  kAdmitted,
  kAdmittedFromWaiting,  // and waits no longer
  kWaitsOn,              // has waited before
  kWaitsNew,             // waits from now on; with a Bloom filter, is only counted
};

// The outcome for each id without a row, indexed by its number in the group; entries of other ids are not
// written. All arrays are [max].
struct Outcomes {
  int64_t* totals = nullptr;  // its occurrences, including those of this lookup
  int64_t* places = nullptr;  // where it waits, kAbsentRow if it does not
  int32_t* outcomes = nullptr;
};

// Decides about `absent`. counts[u] is how often id u occurs in the lookup. filters[ids.tables] and the other
// arrays are on the device.
Status DecideAdmission(cudaStream_t stream, const IdsOfGroup& ids, const SomeIds& absent,
                       const FilterView* filters, const int32_t* counts, const Outcomes& outcomes);

constexpr uint32_t SetOf(Outcome outcome) { return 1u << static_cast<int32_t>(outcome); }

// Lists the ids without a row (rows[u] is kAbsentRow) whose outcome is among `which`.
Status ListOutcomes(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids, const int64_t* rows,
                    const Outcomes& outcomes, uint32_t which, const SomeIds& some);

// Admission::before_lookup: sets read_rows to kAbsentRow for `admitted` ids that read as the default value in
// this lookup. filters[tables] as above; `moved` has the ids' new numbers, or is null if they kept theirs.
Status ReadDefaults(cudaStream_t stream, const IdsOfGroup& ids, const SomeIds& admitted,
                    const FilterView* filters, const int32_t* counts, const Outcomes& outcomes,
                    const int32_t* moved, int64_t* read_rows);

// The ids in another order.
struct ReorderedIds {
  int64_t* keys = nullptr;   // [max]
  int64_t* rows = nullptr;   // [max]
  int32_t* moved = nullptr;  // [max]: the new number of each id
};
// Moves the ids that have rows to the front of their table's; the order is otherwise unchanged.
Status PutRowsFirst(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids, const int64_t* rows,
                    const ReorderedIds& reordered);
// inverse[p] = moved[inverse[p]], for n occurrences.
Status RenumberOccurrences(cudaStream_t stream, const int32_t* moved, int64_t n, int32_t* inverse);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_ADMIT_IDS_H_
