#include "cuda/base/device_buffer.h"
#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/table/commit_admission.h"
#include "cuda/table/give_rows.h"

namespace sok {
namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    SetFrequencyKernel(ListedIds admitted, const int64_t* rows, const int64_t* totals, const int32_t* counts,
                       ColumnView<int64_t> frequency) {
  for (int64_t k = ThreadOfGrid(); k < admitted.n; k += ThreadsOfGrid()) {
    const int32_t u = admitted.which[k];
    frequency[rows[u]] = totals[u] - counts[u];
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    GatherKernel(ListedIds ids, const int64_t* of_id, int64_t* gathered) {
  for (int64_t k = ThreadOfGrid(); k < ids.n; k += ThreadsOfGrid()) gathered[k] = of_id[ids.which[k]];
}

// places[k] = where the k-th id without a row waits from now on; kAbsentRow for an admitted one.
__global__ void __launch_bounds__(kThreadsPerBlock)
    CountWaitingKernel(ListedIds absent, Outcomes outcomes, WaitingView waiting, int64_t step,
                       int64_t* places) {
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

Status CommitWaiting(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                     const FilteredLookup& lookup, int64_t step, DeviceWaiting* waiting) {
  // Places of the ids that are gone, then of those that are fresh, then of all.
  const StatusOr<DeviceBuffer<int64_t>> memory =
      DeviceBuffer<int64_t>::Allocate(scratch, stream, lookup.gone.n + 2 * lookup.fresh.n + lookup.absent.n);
  SOK_RETURN_IF_ERROR(memory.status());
  int64_t* const gone = memory.value().data();
  NewRows fresh;
  fresh.count = lookup.fresh.n;
  fresh.keys = gone + lookup.gone.n;
  fresh.rows = fresh.keys + fresh.count;
  int64_t* const places = fresh.rows + fresh.count;
  SOK_RETURN_IF_ERROR(Gather(stream, lookup.gone, lookup.outcomes.places, gone));
  SOK_RETURN_IF_ERROR(waiting->ErasePlaces(stream, scratch, gone, lookup.gone.n));
  SOK_RETURN_IF_ERROR(Gather(stream, lookup.fresh, lookup.keys, fresh.keys));
  SOK_RETURN_IF_ERROR(waiting->Insert(stream, scratch, upload, fresh.keys, fresh.count, fresh.rows));
  SOK_RETURN_IF_ERROR(SpreadRows(stream, fresh, lookup.fresh.which, lookup.outcomes.places));
  SOK_RETURN_IF_ERROR(Launch("CountWaiting", stream, ShapeFor(lookup.absent.n), CountWaitingKernel,
                             lookup.absent, lookup.outcomes, waiting->view(), step, places));
  return waiting->changes().MarkChanged(stream, places, lookup.absent.n);
}

}  // namespace

Status CommitAdmission(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                       const FilteredLookup& lookup, DeviceTable* table) {
  SOK_RETURN_IF_ERROR(table->Named(
      Launch("SetFrequency", stream, ShapeFor(lookup.admitted.n), SetFrequencyKernel, lookup.admitted,
             lookup.rows, lookup.outcomes.totals, lookup.counts, table->usage().frequency->view())));
  if (table->bloom() != nullptr) {
    return table->Named(
        table->bloom()->Add(stream, lookup.keys, lookup.counts, lookup.absent.which, lookup.absent.n));
  }
  return table->Named(CommitWaiting(stream, scratch, upload, lookup, table->steps(), table->waiting()));
}

}  // namespace sok
