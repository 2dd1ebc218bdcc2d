#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/table/admit_ids.h"
#include "cuda/table/bloom_kernels.h"
#include "cuda/table/number_ids.h"

namespace sok {
namespace {

__device__ __forceinline__ void Decide(const FilterView& filter, int64_t key, int64_t count, int64_t u,
                                       const Outcomes& out) {
  int64_t place = kAbsentRow;
  int64_t before = 0;
  if (filter.has_waiting) place = FindRow(filter.waiting.directory.index, key);
  if (place >= 0) before = filter.waiting.counts[place];
  if (filter.has_bloom) before = BloomCount(filter.bloom, key);
  const int64_t room = INT64_MAX - before;
  const int64_t total = before + (count < room ? count : room);
  const bool is_filtered = filter.has_waiting || filter.has_bloom;
  Outcome outcome;
  if (!is_filtered || total >= filter.filter_freq) {
    outcome = place >= 0 ? Outcome::kAdmittedFromWaiting : Outcome::kAdmitted;
  } else {
    outcome = place >= 0 ? Outcome::kWaitsOn : Outcome::kWaitsNew;
  }
  out.totals[u] = total;
  out.places[u] = place;
  out.outcomes[u] = static_cast<int32_t>(outcome);
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    DecideKernel(IdsOfGroup ids, SomeIds absent, const FilterView* filters, const int32_t* counts,
                 Outcomes out) {
  AwaitPreviousKernels();
  const int64_t n = absent.begin[ids.tables];
  for (int64_t k = ThreadOfGrid(); k < n; k += ThreadsOfGrid()) {
    const int32_t u = absent.which[k];
    Decide(filters[PartOf(absent.begin, ids.tables, k)], ids.keys[u], counts[u], u, out);
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    ReadDefaultsKernel(int tables, SomeIds admitted, const FilterView* filters, const int32_t* counts,
                       const int64_t* totals, const int32_t* moved, int64_t* read_rows) {
  AwaitPreviousKernels();
  const int64_t n = admitted.begin[tables];
  for (int64_t k = ThreadOfGrid(); k < n; k += ThreadsOfGrid()) {
    const int32_t u = admitted.which[k];
    const FilterView& filter = filters[PartOf(admitted.begin, tables, k)];
    // Ids of tables without a filter count as admitted too; their totals are not used.
    if (!filter.before_lookup || totals[u] - counts[u] >= filter.filter_freq) continue;
    read_rows[moved == nullptr ? u : moved[u]] = kAbsentRow;
  }
}

struct HasOutcome {
  const int64_t* rows;
  const int32_t* outcomes;
  uint32_t which;
  __device__ bool operator()(int64_t u) const {
    return rows[u] == kAbsentRow && (which >> outcomes[u] & 1) != 0;
  }
};

struct HasRow {
  const int64_t* num_ids;
  const int64_t* rows;
  __device__ bool operator()(int64_t u) const { return u < *num_ids && rows[u] >= 0; }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    ReorderKernel(FlagRanks with_row, IdsOfGroup ids, const int64_t* rows, ReorderedIds out) {
  AwaitPreviousKernels();
  const int64_t n = ids.begin[ids.tables];
  for (int64_t u = ThreadOfGrid(); u < n; u += ThreadsOfGrid()) {
    const int t = PartOf(ids.begin, ids.tables, u);
    const int64_t first = ids.begin[t];
    const int64_t before = with_row.Before(u) - with_row.Before(first);
    const int64_t all = with_row.Before(ids.begin[t + 1]) - with_row.Before(first);
    const int64_t to = with_row.IsFlagged(u) ? first + before : first + all + (u - first - before);
    out.keys[to] = ids.keys[u];
    out.rows[to] = rows[u];
    out.moved[u] = static_cast<int32_t>(to);
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    RenumberKernel(const int32_t* moved, int64_t n, int32_t* inverse) {
  AwaitPreviousKernels();
  for (int64_t p = ThreadOfGrid(); p < n; p += ThreadsOfGrid()) inverse[p] = moved[inverse[p]];
}

}  // namespace

Status DecideAdmission(cudaStream_t stream, const IdsOfGroup& ids, const SomeIds& absent,
                       const FilterView* filters, const int32_t* counts, const Outcomes& outcomes) {
  return Launch("DecideAdmission", stream, ShapeFor(ids.max), DecideKernel, ids, absent, filters, counts,
                outcomes);
}

Status ReadDefaults(cudaStream_t stream, const IdsOfGroup& ids, const SomeIds& admitted,
                    const FilterView* filters, const int32_t* counts, const Outcomes& outcomes,
                    const int32_t* moved, int64_t* read_rows) {
  return Launch("ReadDefaults", stream, ShapeFor(ids.max), ReadDefaultsKernel, ids.tables, admitted, filters,
                counts, outcomes.totals, moved, read_rows);
}

Status ListOutcomes(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids, const int64_t* rows,
                    const Outcomes& outcomes, uint32_t which, const SomeIds& some) {
  return NumberIds("ListOutcomes", stream, scratch, ids, HasOutcome{rows, outcomes.outcomes, which}, some);
}

Status PutRowsFirst(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids, const int64_t* rows,
                    const ReorderedIds& reordered) {
  RankedFlags flags;
  SOK_RETURN_IF_ERROR(
      RankFlags("HasRow", stream, scratch, ids.max, HasRow{ids.begin + ids.tables, rows}, &flags));
  return Launch("PutRowsFirst", stream, ShapeFor(ids.max), ReorderKernel, flags.ranks(), ids, rows,
                reordered);
}

Status RenumberOccurrences(cudaStream_t stream, const int32_t* moved, int64_t n, int32_t* inverse) {
  return Launch("RenumberOccurrences", stream, ShapeFor(n), RenumberKernel, moved, n, inverse);
}

}  // namespace sok
