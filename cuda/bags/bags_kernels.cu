#include <cuda/atomic>

#include "cuda/bags/bags_kernels.h"
#include "cuda/base/launch.h"
#include "cuda/scan/fill_runs.h"
#include "cuda/scan/flag_ranks.h"

namespace sok {
namespace {

static_assert(kBagTile % kThreadsPerBlock == 0, "all warps of a block are whole");

// The places of ids if all of them stay in their bags.
struct AllStay {
  __device__ __forceinline__ bool Stays(int64_t /*id*/) const { return true; }
  __device__ __forceinline__ int64_t Before(int64_t id) const { return id; }
};

// The places of ids if some are left out.
struct SomeStay {
  FlagRanks stays;
  __device__ __forceinline__ bool Stays(int64_t id) const { return stays.IsFlagged(id); }
  __device__ __forceinline__ int64_t Before(int64_t id) const { return stays.Before(id); }
};

__device__ __forceinline__ void ReportError(const GroupView& group, const InputView& lookup, BagError error,
                                            int64_t number) {
  cuda::atomic_ref<uint64_t, cuda::thread_scope_device>(*group.report.error())
      .fetch_min(BagErrorWord::Of(lookup.number, error, number), cuda::std::memory_order_relaxed);
}

// Adds the flags of each lane to the lookup's. All 32 lanes of the warp must call it.
__device__ __forceinline__ void ReportFlags(const GroupView& group, int l, unsigned flags) {
  const unsigned of_warp = ReduceInWarp(flags, [](unsigned a, unsigned b) { return a | b; });
  if (threadIdx.x % 32 != 0 || of_warp == 0) return;
  cuda::atomic_ref<uint64_t, cuda::thread_scope_device>(group.report.flags()[l])
      .fetch_or(of_warp, cuda::std::memory_order_relaxed);
}

__device__ __forceinline__ int64_t GivenPosition(const InputView& lookup, int64_t j) {
  return lookup.order == nullptr ? j : lookup.order[j];
}

// The bag of a sparse id, clamped to [0, num_bags] if the index is invalid.
__device__ __forceinline__ int64_t BagWithin(const InputView& lookup, int64_t given) {
  return min(max(lookup.input.indices[2 * given], int64_t{0}), lookup.input.num_bags);
}

__device__ __forceinline__ int64_t SplitOf(const LookupInput& input, int64_t bag) {
  return input.narrow_splits == nullptr ? input.row_splits[bag] : input.narrow_splits[bag];
}

__device__ __forceinline__ int64_t SplitWithin(const InputView& lookup, int64_t bag) {
  return min(max(SplitOf(lookup.input, bag), int64_t{0}), lookup.input.num_ids);
}

__device__ __forceinline__ int64_t ReadKey(const LookupInput& input, int64_t given) {
  switch (input.key_type) {
    case KeyType::kInt32:
      return static_cast<const int32_t*>(input.ids)[given];
    case KeyType::kUint32:
      return static_cast<const uint32_t*>(input.ids)[given];
    case KeyType::kInt64:
      break;
  }
  return static_cast<const int64_t*>(input.ids)[given];
}

__device__ __forceinline__ bool IsFinite(float value) {
  return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
}

// Checks the index of a sparse id, and that of its weight.
__device__ __forceinline__ void CheckIndex(const GroupView& group, const InputView& lookup, int64_t given,
                                           unsigned* flags) {
  const int64_t* const indices = lookup.input.indices;
  const int64_t bag = indices[2 * given];
  if (bag < 0 || bag >= lookup.input.num_bags) ReportError(group, lookup, BagError::kIndex, given);
  if (given > 0 && indices[2 * (given - 1)] > bag) *flags |= kUnsorted;
  if (lookup.may_be_one_each && bag != given) *flags |= kNotOneEach;
  if (lookup.input.weight_places == nullptr) return;
  for (int64_t at = 2 * given; at < 2 * given + 2; ++at) {
    if (lookup.input.weight_places[at] == indices[at]) continue;
    ReportError(group, lookup, BagError::kPlaces, at);
    return;
  }
}

// Flags a lookup with a long bag. kIdsOfLongBag ids of one bag follow one another, so that two of them are at
// adjacent multiples of half as many: only those are compared.
__device__ __forceinline__ void LookForLongBag(const InputView& lookup, int64_t j, int64_t given,
                                               unsigned* flags) {
  constexpr int64_t kHalf = kIdsOfLongBag / 2;
  if (j % kHalf != 0 || j == 0) return;
  const int64_t before = GivenPosition(lookup, j - kHalf);
  if (BagWithin(lookup, given) == BagWithin(lookup, before)) *flags |= kHasLongBag;
}

// Handles the j-th id of a lookup: checks the id's inputs, and writes its occurrence's entries.
template <typename Places>
__device__ __forceinline__ void TakeId(const GroupView& group, const InputView& lookup, const Places& places,
                                       int64_t j, unsigned* flags) {
  const int64_t given = GivenPosition(lookup, j);
  const int64_t id = lookup.first_id + j;
  if (lookup.layout == IdLayout::kSparse) {
    CheckIndex(group, lookup, given, flags);
    LookForLongBag(lookup, j, given, flags);
  }
  float weight = 1.0f;
  if (lookup.weighted) {
    weight = lookup.input.weights[given];
    if (!IsFinite(weight)) ReportError(group, lookup, BagError::kWeight, given);
  }
  if (!places.Stays(id)) return;
  const int64_t p = places.Before(id);
  group.keys[p] = ReadKey(lookup.input, given);
  if (lookup.weighted) group.weights[p] = weight;
  if (lookup.has_order) group.order[p] = static_cast<int32_t>(given);
}

// The bags that begin at the j-th of the sorted ids: those after the previous id's bag, up to the id's own.
// The remaining bags, and the end of the last one, are after the last id.
template <typename Places>
__device__ __forceinline__ Run BagsThatBegin(const InputView& lookup, const Places& places, int64_t j) {
  const int64_t n = lookup.input.num_ids;
  if (j > n) return {0, 0, 0};
  const int64_t after = j == 0 ? 0 : BagWithin(lookup, GivenPosition(lookup, j - 1)) + 1;
  const int64_t own = j == n ? lookup.input.num_bags : BagWithin(lookup, GivenPosition(lookup, j));
  return {after, own + 1, static_cast<int32_t>(places.Before(lookup.first_id + j))};
}

// Whether a lane of the warp has one of `items` pieces of work; item `i` is this lane's.
__device__ __forceinline__ bool WarpHasWork(int64_t i, int64_t items) { return i - threadIdx.x % 32 < items; }

// One block per kBagTile ids of a lookup. Sparse ids have one extra item after the last.
template <typename Places>
__global__ __launch_bounds__(kThreadsPerBlock) void IdsKernel(GroupView group, Places places) {
  AwaitPreviousKernels();
  const int l = PartOf(group.id_tiles, group.num_lookups, static_cast<int64_t>(blockIdx.x));
  const InputView lookup = group.lookups[l];  // in registers
  const int64_t first = (blockIdx.x - group.id_tiles[l]) * kBagTile;
  const bool sparse = lookup.layout == IdLayout::kSparse;
  const int64_t items = lookup.input.num_ids + (sparse ? 1 : 0);
  unsigned flags = 0;
  for (int at = static_cast<int>(threadIdx.x); at < kBagTile && WarpHasWork(first + at, items);
       at += kThreadsPerBlock) {
    const int64_t j = first + at;
    if (j < lookup.input.num_ids) TakeId(group, lookup, places, j, &flags);
    if (sparse) FillRuns(lookup.bag_begin, BagsThatBegin(lookup, places, j));
  }
  ReportFlags(group, l, flags);
}

// Checks row split `bag`, and that of the weights.
__device__ __forceinline__ void CheckSplit(const GroupView& group, const InputView& lookup, int64_t bag) {
  const int64_t split = SplitOf(lookup.input, bag);
  if (bag == 0 && split != 0) ReportError(group, lookup, BagError::kSplitsBegin, 0);
  if (bag > 0 && split < SplitOf(lookup.input, bag - 1))
    ReportError(group, lookup, BagError::kSplitsFall, bag);
  if (bag == lookup.input.num_bags && split != lookup.input.num_ids) {
    ReportError(group, lookup, BagError::kSplitsEnd, bag);
  }
  const int64_t* const of_weights = lookup.input.weight_places;
  if (of_weights != nullptr && of_weights[bag] != split) ReportError(group, lookup, BagError::kPlaces, bag);
}

// One block per kBagTile row splits of a lookup.
template <typename Places>
__global__ __launch_bounds__(kThreadsPerBlock) void SplitsKernel(GroupView group, Places places) {
  AwaitPreviousKernels();
  const int l = PartOf(group.split_tiles, group.num_lookups, static_cast<int64_t>(blockIdx.x));
  const InputView& lookup = group.lookups[l];
  const int64_t first = (blockIdx.x - group.split_tiles[l]) * kBagTile;
  unsigned flags = 0;
  const int64_t end = min(first + kBagTile, lookup.input.num_bags + 1);
  for (int64_t bag = first + threadIdx.x; bag < end; bag += kThreadsPerBlock) {
    CheckSplit(group, lookup, bag);
    if (lookup.may_be_one_each && SplitOf(lookup.input, bag) != bag) flags |= kNotOneEach;
    const int64_t split = SplitWithin(lookup, bag);
    if (split - SplitWithin(lookup, max(bag - 1, int64_t{0})) >= kIdsOfLongBag) flags |= kHasLongBag;
    lookup.bag_begin[bag] = static_cast<int32_t>(places.Before(lookup.first_id + split));
  }
  ReportFlags(group, l, flags);
}

// Initializes the report: no errors, no flags, and where occurrences begin.
template <typename Places>
__global__ __launch_bounds__(kThreadsPerBlock) void StartReportKernel(GroupView group, Places places) {
  AwaitPreviousKernels();
  const BagsReport& report = group.report;
  const int num_tables = report.num_tables();
  const int num_lookups = report.num_lookups();
  const int step = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) *report.error() = BagErrorWord::kNone;
  for (int t = thread; t <= num_tables; t += step) report.table_begin()[t] = places.Before(group.table_id[t]);
  for (int l = thread; l <= num_lookups; l += step) {
    report.lookup_begin()[l] = places.Before(group.first_id[l]);
    if (l < num_lookups) report.flags()[l] = 0;
  }
}

// Whether an id stays in its bag.
struct StaysInBag {
  GroupView group;

  __device__ bool operator()(int64_t id) const {
    const int l = PartOf(group.first_id, group.num_lookups, id);
    const InputView& lookup = group.lookups[l];
    if (!lookup.drops_ids) return true;
    return lookup.input.weights[GivenPosition(lookup, id - lookup.first_id)] > 0.0f;
  }
};

__global__ __launch_bounds__(kThreadsPerBlock) void SortKeysKernel(GroupView group, int64_t n, uint32_t* keys,
                                                                   int32_t* given) {
  AwaitPreviousKernels();
  for (int64_t k = ThreadOfGrid(); k < n; k += ThreadsOfGrid()) {
    const int l = PartOf(group.first_sorted, group.num_lookups, k);
    const InputView& lookup = group.lookups[l];
    const int64_t position = k - group.first_sorted[l];
    keys[k] = static_cast<uint32_t>(lookup.first_bag + BagWithin(lookup, position));
    given[k] = static_cast<int32_t>(position);
  }
}

template <typename Places>
Status Write(cudaStream_t stream, const GroupView& group, const BagPasses& passes, const Places& places) {
  SOK_RETURN_IF_ERROR(
      Launch("StartReport", stream, {1, kThreadsPerBlock, 0}, StartReportKernel<Places>, group, places));
  SOK_RETURN_IF_ERROR(
      Launch("Ids", stream, {passes.id_tiles, kThreadsPerBlock, 0}, IdsKernel<Places>, group, places));
  return Launch("Splits", stream, {passes.split_tiles, kThreadsPerBlock, 0}, SplitsKernel<Places>, group,
                places);
}

}  // namespace

Status WriteSortKeys(cudaStream_t stream, const GroupView& group, int64_t n, uint32_t* keys, int32_t* given) {
  return Launch("SortKeys", stream, ShapeFor(n), SortKeysKernel, group, n, keys, given);
}

Status WriteBags(cudaStream_t stream, DeviceAllocator* scratch, const GroupView& group,
                 const BagPasses& passes) {
  if (!passes.drops_ids) return Write(stream, group, passes, AllStay{});
  RankedFlags stays;
  SOK_RETURN_IF_ERROR(RankFlags("StaysInBag", stream, scratch, passes.num_ids, StaysInBag{group}, &stays));
  return Write(stream, group, passes, SomeStay{stays.ranks()});
}

}  // namespace sok
