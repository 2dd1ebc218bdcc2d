#include <utility>

#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/table/commit_admission.h"
#include "cuda/table/directory_rows.h"

namespace sok {
namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    SetFrequencyKernel(ListedIds admitted, const int64_t* rows, const int64_t* totals, const int32_t* counts,
                       ColumnView<int64_t> frequency) {
  AwaitPreviousKernels();
  for (int64_t k = ThreadOfGrid(); k < admitted.n; k += ThreadsOfGrid()) {
    const int32_t u = admitted.which[k];
    frequency[rows[u]] = totals[u] - counts[u];
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    GatherKernel(ListedIds ids, const int64_t* of_id, int64_t* gathered) {
  AwaitPreviousKernels();
  for (int64_t k = ThreadOfGrid(); k < ids.n; k += ThreadsOfGrid()) gathered[k] = of_id[ids.which[k]];
}

// places[k] = where the k-th id without a row waits from now on; kAbsentRow for an admitted one.
__global__ void __launch_bounds__(kThreadsPerBlock)
    CountWaitingKernel(ListedIds absent, Outcomes outcomes, WaitingView waiting, int64_t step,
                       int64_t* places) {
  AwaitPreviousKernels();
  for (int64_t k = ThreadOfGrid(); k < absent.n; k += ThreadsOfGrid()) {
    const int32_t u = absent.which[k];
    const auto outcome = static_cast<Outcome>(outcomes.outcomes[u]);
    const bool waits = outcome == Outcome::kWaitsOn || outcome == Outcome::kWaitsNew;
    const int64_t place = waits ? outcomes.places[u] : kAbsentRow;
    places[k] = place;
    if (!waits) continue;
    waiting.counts[place] = outcomes.totals[u];
    waiting.last_steps[place] = step;
  }
}

Status Gather(cudaStream_t stream, const ListedIds& ids, const int64_t* of_id, int64_t* gathered) {
  return Launch("GatherIds", stream, ShapeFor(ids.n), GatherKernel, ids, of_id, gathered);
}

}  // namespace

Status AdmissionCommit::Prepare(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                                const FilteredLookup& lookup, DeviceTable* table) {
  lookup_ = lookup;
  table_ = table;
  if (table->waiting() == nullptr) return OkStatus();
  const int64_t gone = lookup.gone.n;
  const int64_t fresh = lookup.fresh.n;
  SOK_ASSIGN_OR_RETURN(memory_, table->Named(DeviceBuffer<int64_t>::Allocate(
                                    scratch, stream, 2 * gone + 2 * fresh + lookup.absent.n)));
  SOK_ASSIGN_OR_RETURN(uploaded_, table->Named(table->waiting()->PrepareInsert(stream, scratch, upload, fresh,
                                                                               /*erased=*/gone, &fresh_)));
  gone_places_ = memory_.data();
  gone_keys_ = gone_places_ + gone;
  fresh_.keys = gone_keys_ + gone;
  fresh_.rows = fresh_.keys + fresh;
  places_ = fresh_.rows + fresh;
  return OkStatus();
}

Status AdmissionCommit::Commit(cudaStream_t stream) {
  SOK_RETURN_IF_ERROR(table_->Named(
      Launch("SetFrequency", stream, ShapeFor(lookup_.admitted.n), SetFrequencyKernel, lookup_.admitted,
             lookup_.rows, lookup_.outcomes.totals, lookup_.counts, table_->usage().frequency->view())));
  if (table_->bloom() == nullptr) return table_->Named(CommitWaiting(stream));
  return table_->Named(
      table_->bloom()->Add(stream, lookup_.keys, lookup_.counts, lookup_.absent.which, lookup_.absent.n));
}

Status AdmissionCommit::CommitWaiting(cudaStream_t stream) {
  DeviceWaiting& waiting = *table_->waiting();
  SOK_RETURN_IF_ERROR(Gather(stream, lookup_.gone, lookup_.outcomes.places, gone_places_));
  SOK_RETURN_IF_ERROR(waiting.ErasePlaces(stream, gone_places_, lookup_.gone.n, gone_keys_));
  SOK_RETURN_IF_ERROR(Gather(stream, lookup_.fresh, lookup_.keys, fresh_.keys));
  SOK_RETURN_IF_ERROR(waiting.Insert(stream, fresh_));
  SOK_RETURN_IF_ERROR(SpreadRows(stream, fresh_, lookup_.fresh.which, lookup_.outcomes.places));
  SOK_RETURN_IF_ERROR(Launch("CountWaiting", stream, ShapeFor(lookup_.absent.n), CountWaitingKernel,
                             lookup_.absent, lookup_.outcomes, waiting.view(), table_->steps(), places_));
  return waiting.changes().MarkChanged(stream, places_, lookup_.absent.n);
}

}  // namespace sok
