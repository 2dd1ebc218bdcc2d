#include <algorithm>
#include <utility>

#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/store/row_pieces.h"
#include "cuda/table/device_waiting.h"
#include "cuda/table/directory_rows.h"

namespace sok {
namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    MoveKernel(ColumnView<int64_t> steps, int64_t places, int64_t by) {
  AwaitPreviousKernels();
  for (int64_t place = ThreadOfGrid(); place < places; place += ThreadsOfGrid()) {
    const int64_t moved = steps[place] + by;
    steps[place] = moved > 0 ? moved : 0;
  }
}

}  // namespace

Status DeviceWaiting::Reserve(cudaStream_t stream, int64_t insertions, int64_t erasures) {
  const int64_t needed = directory_.RowLimitWith(insertions);
  // Growing by at least half keeps the number of reservations small.
  const int64_t places = needed <= counts_.rows() ? counts_.rows() : std::max(needed, limit() + limit() / 2);
  SOK_RETURN_IF_ERROR(directory_.Reserve(stream, size() + insertions, places));
  SOK_RETURN_IF_ERROR(counts_.Reserve(stream, places));
  SOK_RETURN_IF_ERROR(last_steps_.Reserve(stream, places));
  SOK_RETURN_IF_ERROR(directory_.ReserveErase(stream, erasures));
  return changes_.Reserve(stream, places, erasures);
}

StatusOr<DeviceBuffer<char>> DeviceWaiting::PrepareInsert(cudaStream_t stream, DeviceAllocator* scratch,
                                                          StagedUpload* upload, int64_t n, int64_t erased,
                                                          NewRows* new_ids) const {
  if (n == 0) return DeviceBuffer<char>();
  RowSource source = SourceOf(directory_);
  source.num_free += erased;
  const int64_t begin[2] = {0, n};
  new_ids->tables = 1;
  new_ids->count = n;
  upload->Add(Span<const RowSource>(&source, 1), &new_ids->sources);
  upload->Add(Span<const KeyIndexView>(&source.directory.index, 1), &new_ids->indexes);
  upload->Add(Span<const int64_t>(begin, 2), &new_ids->begin);
  return upload->Send(stream, scratch);
}

Status DeviceWaiting::Insert(cudaStream_t stream, const NewRows& new_ids) {
  if (new_ids.count == 0) return OkStatus();
  SOK_RETURN_IF_ERROR(GiveRows(stream, new_ids));
  directory_.CountGiven(new_ids.count);
  return OkStatus();
}

Status DeviceWaiting::FindPlaces(cudaStream_t stream, DeviceAllocator* scratch, RoundTrip* round_trip,
                                 const int64_t* keys, int64_t n, Places* found) {
  found->n = 0;
  if (n == 0 || size() == 0) return OkStatus();
  SOK_ASSIGN_OR_RETURN(found->memory, DeviceBuffer<int64_t>::Allocate(scratch, stream, 2 * n + 1));
  int64_t* const places = found->memory.data();
  int64_t* const distinct = places + n;
  int64_t* const count = distinct + n;
  SOK_RETURN_IF_ERROR(FindKeys(stream, directory_.view().index, keys, n, places));
  SOK_RETURN_IF_ERROR(SortDistinctRows(stream, scratch, places, n, limit(), distinct, count));
  SOK_ASSIGN_OR_RETURN(const int64_t* const fetched, round_trip->Fetch(stream, count, 1));
  SOK_RETURN_IF_ERROR(Reserve(stream, 0, *fetched));
  found->places = distinct;
  found->keys = places;  // no longer needed
  found->n = *fetched;
  return OkStatus();
}

Status DeviceWaiting::ErasePlaces(cudaStream_t stream, int64_t* places, int64_t n, int64_t* keys) {
  if (n == 0) return OkStatus();
  SOK_RETURN_IF_ERROR(EraseRows(stream, directory_, places, n, keys));
  directory_.CountErased(stream, n);
  return changes_.MarkErased(stream, places, keys, n);
}

Status DeviceWaiting::Erase(cudaStream_t stream, DeviceAllocator* scratch, RoundTrip* round_trip,
                            const int64_t* keys, int64_t n) {
  Places found;
  SOK_RETURN_IF_ERROR(FindPlaces(stream, scratch, round_trip, keys, n, &found));
  return ErasePlaces(stream, found);
}

Status DeviceWaiting::Set(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                          RoundTrip* round_trip, const int64_t* keys, const int64_t* counts,
                          const int64_t* last_steps, int64_t n) {
  if (n == 0) return OkStatus();
  SOK_ASSIGN_OR_RETURN(const auto memory, DeviceBuffer<int64_t>::Allocate(scratch, stream, 3 * n + 4));
  SOK_ASSIGN_OR_RETURN(const auto which, DeviceBuffer<int32_t>::Allocate(scratch, stream, n));
  int64_t* const places = memory.data();
  int64_t* const begin = places + n;  // begin[2] of the ids, then of the new ones
  int64_t* const new_keys = begin + 4;
  int64_t* const new_places = new_keys + n;
  const int64_t host_begin[2] = {0, n};
  SOK_RETURN_IF_ERROR(upload->Copy(stream, host_begin, sizeof(host_begin), begin));
  const IdsOfGroup ids = {1, begin, keys, n};
  SOK_RETURN_IF_ERROR(FindKeys(stream, directory_.view().index, keys, n, places));
  SOK_RETURN_IF_ERROR(ListAbsent(stream, scratch, ids, places, {begin + 2, which.data()}));
  SOK_ASSIGN_OR_RETURN(const int64_t* const fetched, round_trip->Fetch(stream, begin + 3, 1));
  const int64_t num_new = *fetched;
  SOK_RETURN_IF_ERROR(Reserve(stream, num_new, 0));
  NewRows new_ids;
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<char> uploaded,
                       PrepareInsert(stream, scratch, upload, num_new, /*erased=*/0, &new_ids));
  new_ids.keys = new_keys;
  new_ids.rows = new_places;
  SOK_RETURN_IF_ERROR(CollectKeys(stream, ids, which.data(), new_ids));
  SOK_RETURN_IF_ERROR(Insert(stream, new_ids));
  SOK_RETURN_IF_ERROR(SpreadRows(stream, new_ids, which.data(), places));
  SOK_RETURN_IF_ERROR(ScatterColumn(stream, counts_.view(), {places, 0, n}, counts));
  SOK_RETURN_IF_ERROR(ScatterColumn(stream, last_steps_.view(), {places, 0, n}, last_steps));
  return changes_.MarkChanged(stream, places, n);
}

Status AddToSteps(cudaStream_t stream, const ColumnView<int64_t>& steps, int64_t n, int64_t by) {
  return Launch("AddToSteps", stream, ShapeFor(n), MoveKernel, steps, n, by);
}

}  // namespace sok
