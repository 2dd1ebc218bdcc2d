#include <algorithm>
#include <cuda/atomic>
#include <limits>

#include "cc/base/hash.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/dedup/dedup.h"
#include "cuda/scan/fill_runs.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/scan/stable_sort.h"

namespace sok {
namespace {

// A hash table of positions: a slot holds an occurrence, whose key is the slot's key. In the end, an id's
// slot holds the id's first occurrence, whatever the order of threads.
struct PositionTable {
  uint32_t* slots;
  uint64_t mask;
};
constexpr uint32_t kEmpty = 0xffffffffu;

// Occurrences of one table.
struct TableRange {
  int64_t begin;
  int64_t end;
  uint64_t seed;  // so that equal ids of two tables do not compete for slots
};

__device__ __forceinline__ TableRange RangeOf(const Occurrences& occurrences, int64_t p) {
  const int t = PartOf(occurrences.table_begin, occurrences.num_tables, p);
  return {occurrences.table_begin[t], occurrences.table_begin[t + 1],
          static_cast<uint64_t>(t) * 0x9e3779b97f4a7c15u};
}

__device__ __forceinline__ int64_t NumOccurrences(const Occurrences& occurrences) {
  return occurrences.table_begin[occurrences.num_tables];
}

__device__ __forceinline__ bool IsMerged(const Occurrences& occurrences, int64_t p) {
  return occurrences.is_merged == nullptr ||
         occurrences.is_merged[PartOf(occurrences.table_begin, occurrences.num_tables, p)] != 0;
}

// Finds the slot of occurrence `p`, and stores `p` there if it is the earliest so far. To try to store is
// faster than to look first: most ids are new to the table, as frequent ones come once a block.
__device__ __forceinline__ uint32_t Claim(const PositionTable& table, const int64_t* keys,
                                          const TableRange& range, uint32_t p) {
  const int64_t key = keys[p];
  for (uint64_t at = Mix64(static_cast<uint64_t>(key) + range.seed) & table.mask;;
       at = (at + 1) & table.mask) {
    // Relaxed: the keys were there before the kernel, and a slot never changes to another id.
    const cuda::atomic_ref<uint32_t, cuda::thread_scope_device> slot(table.slots[at]);
    uint32_t there = kEmpty;
    if (slot.compare_exchange_strong(there, p, cuda::std::memory_order_relaxed)) {
      return static_cast<uint32_t>(at);
    }
    if (there < range.begin || there >= range.end || keys[there] != key) continue;
    if (p < there) slot.fetch_min(p, cuda::std::memory_order_relaxed);
    return static_cast<uint32_t>(at);
  }
}

// Occurrences that follow one another, one for each thread of a block, and a table of their ids: a slot holds
// the number of one in the tile. In the end, an id's slot holds that of its first one.
constexpr int kTile = 512;
constexpr int kTileSlots = 2 * kTile;
struct ClaimTile {
  int64_t keys[kTile];
  int tables[kTile];
  int slots[kTileSlots];    // kTile: empty
  uint32_t claimed[kTile];  // for the first occurrence of an id in the tile, its slot of the PositionTable
};

// The slot of occurrence number `i` in the tile.
__device__ __forceinline__ int ClaimInTile(ClaimTile& tile, int i) {
  const int64_t key = tile.keys[i];
  const uint64_t hash = Mix64(static_cast<uint64_t>(key)) >> 32;  // the PositionTable takes the low bits
  for (int at = static_cast<int>(hash % kTileSlots);; at = (at + 1) % kTileSlots) {
    const int there = atomicCAS(&tile.slots[at], kTile, i);
    if (there == kTile) return at;
    if (tile.keys[there] != key || tile.tables[there] != tile.tables[i]) continue;
    if (i < there) atomicMin(&tile.slots[at], i);
    return at;
  }
}

// Only the first occurrence of an id in a tile looks into the table: otherwise threads of many blocks would
// contend for the slot of a frequent id.
__global__ __launch_bounds__(kTile) void ClaimKernel(Occurrences occurrences, PositionTable table,
                                                     uint32_t* slot_of) {
  AwaitPreviousKernels();
  __shared__ ClaimTile tile;
  const int i = static_cast<int>(threadIdx.x);
  const int64_t n = NumOccurrences(occurrences);
  for (int64_t first = int64_t{blockIdx.x} * kTile; first < n; first += int64_t{gridDim.x} * kTile) {
    const int64_t p = first + i;
    for (int at = i; at < kTileSlots; at += kTile) tile.slots[at] = kTile;
    bool claims = false;
    if (p < n) {
      tile.keys[i] = occurrences.keys[p];
      tile.tables[i] = PartOf(occurrences.table_begin, occurrences.num_tables, p);
      claims = occurrences.is_merged == nullptr || occurrences.is_merged[tile.tables[i]] != 0;
    }
    __syncthreads();
    const int own = claims ? ClaimInTile(tile, i) : 0;
    __syncthreads();
    if (claims && tile.slots[own] == i) {
      tile.claimed[i] = Claim(table, occurrences.keys, RangeOf(occurrences, p), static_cast<uint32_t>(p));
    }
    __syncthreads();
    if (claims) slot_of[p] = tile.claimed[tile.slots[own]];
    __syncthreads();  // before the next tile overwrites this one
  }
}

// Whether an occurrence is the first of its id. Replaces its slot's number by the slot's value.
struct IsFirst {
  Occurrences occurrences;
  const uint32_t* slots;
  uint32_t* first;

  __device__ bool operator()(int64_t p) const {
    if (p >= NumOccurrences(occurrences)) return false;
    const uint32_t there = IsMerged(occurrences, p) ? slots[first[p]] : static_cast<uint32_t>(p);
    first[p] = there;
    return there == p;
  }
};

// Adds one to counts[u] for each lane of the warp with u >= 0. All lanes must call it. Lanes with the same id
// add together; otherwise all threads would contend for the counter of a frequent id.
__device__ __forceinline__ void Count(int32_t u, int32_t* counts) {
  const unsigned same = __match_any_sync(kAllLanes, u);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (u >= 0 && __ffs(static_cast<int>(same)) == lane + 1) atomicAdd(&counts[u], __popc(same));
}

// Writes the entries of distinct id `u`, whose first occurrence is `p`.
__device__ __forceinline__ void WriteFirst(const Occurrences& occurrences, const UniqueIds& unique, int64_t p,
                                           int32_t u) {
  unique.position[u] = static_cast<int32_t>(p);
  if (unique.keys != nullptr) unique.keys[u] = occurrences.keys[p];
}

__global__ __launch_bounds__(kThreadsPerBlock) void NumberKernel(Occurrences occurrences, FlagRanks firsts,
                                                                 const uint32_t* first, UniqueIds unique) {
  AwaitPreviousKernels();
  const int64_t n = NumOccurrences(occurrences);
  for (int64_t t = ThreadOfGrid(); t <= occurrences.num_tables; t += ThreadsOfGrid()) {
    unique.begin[t] = firsts.Before(occurrences.table_begin[t]);
  }
  // Whole warps, as Count needs them.
  for (int64_t p = ThreadOfGrid(); p - threadIdx.x % 32 < n; p += ThreadsOfGrid()) {
    int32_t u = -1;
    if (p < n) {
      u = firsts.Before(first[p]);
      unique.inverse[p] = u;
      if (first[p] == p) WriteFirst(occurrences, unique, p, u);
    }
    if (unique.counts != nullptr) Count(u, unique.counts);
  }
}

// At a load of one half or less, probes stay short.
uint64_t SlotsFor(int64_t occurrences) {
  uint64_t slots = 64;
  while (slots < 2 * static_cast<uint64_t>(occurrences)) slots *= 2;
  return slots;
}

Status FillBytes(cudaStream_t stream, void* memory, int byte, int64_t bytes) {
  if (bytes == 0) return OkStatus();
  return CudaStatus(cudaMemsetAsync(memory, byte, static_cast<size_t>(bytes), stream), "cannot fill ", bytes,
                    " bytes on the device");
}

// Empties `slots`, and fills them: slot_of[p] is the slot of occurrence p, if its table's ids are merged.
Status ClaimSlots(cudaStream_t stream, const Occurrences& occurrences, const DeviceBuffer<uint32_t>& slots,
                  uint32_t* slot_of) {
  SOK_RETURN_IF_ERROR(FillBytes(stream, slots.data(), 0xff, slots.bytes()));
  const PositionTable table = {slots.data(), static_cast<uint64_t>(slots.size()) - 1};
  const int64_t tiles = (occurrences.max + kTile - 1) / kTile;
  return Launch("Claim", stream, {std::min(tiles, kMaxBlocks), kTile, 0}, ClaimKernel, occurrences, table,
                slot_of);
}

}  // namespace

Status Dedup(cudaStream_t stream, DeviceAllocator* scratch, const Occurrences& occurrences,
             const UniqueIds& unique) {
  const int64_t n = occurrences.max;
  if (n > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("a lookup takes at most 2^31 - 1 ids, got ", n);
  }
  SOK_ASSIGN_OR_RETURN(auto slots,
                       DeviceBuffer<uint32_t>::Allocate(scratch, stream, static_cast<int64_t>(SlotsFor(n))));
  SOK_ASSIGN_OR_RETURN(auto first, DeviceBuffer<uint32_t>::Allocate(scratch, stream, n));
  SOK_RETURN_IF_ERROR(ClaimSlots(stream, occurrences, slots, first.data()));

  RankedFlags firsts;
  const IsFirst is_first = {occurrences, slots.data(), first.data()};
  SOK_RETURN_IF_ERROR(RankFlags("IsFirst", stream, scratch, n, is_first, &firsts));
  if (unique.counts != nullptr) {
    SOK_RETURN_IF_ERROR(FillBytes(stream, unique.counts, 0, n * static_cast<int64_t>(sizeof(int32_t))));
  }
  const int64_t work = std::max<int64_t>(n, occurrences.num_tables + 1);
  return Launch("Number", stream, ShapeFor(work), NumberKernel, occurrences, firsts.ranks(), first.data(),
                unique);
}

namespace {

__global__ __launch_bounds__(kThreadsPerBlock) void PositionsKernel(int64_t n, int32_t* positions) {
  AwaitPreviousKernels();
  for (int64_t p = ThreadOfGrid(); p < n; p += ThreadsOfGrid()) positions[p] = static_cast<int32_t>(p);
}

// The k-th of the sorted occurrences writes the begins of the segments after the previous occurrence's, up to
// its own. One extra item after the last writes the rest. In whole warps, as FillRuns requires.
__global__ __launch_bounds__(kThreadsPerBlock) void BeginsKernel(const uint32_t* sorted, int64_t n,
                                                                 int64_t unique, int32_t* begin) {
  AwaitPreviousKernels();
  for (int64_t k = ThreadOfGrid(); k - threadIdx.x % 32 <= n; k += ThreadsOfGrid()) {
    Run run = {0, 0, static_cast<int32_t>(k)};
    if (k <= n) {
      run.begin = k == 0 ? 0 : static_cast<int64_t>(sorted[k - 1]) + 1;
      run.end = k == n ? unique + 1 : static_cast<int64_t>(sorted[k]) + 1;
    }
    FillRuns(begin, run);
  }
}

}  // namespace

Status SortIntoSegments(cudaStream_t stream, DeviceAllocator* scratch, const int32_t* inverse,
                        int64_t occurrences, int64_t unique, const SegmentArrays& segments) {
  if (occurrences > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("a lookup takes at most 2^31 - 1 ids, got ", occurrences);
  }
  SOK_ASSIGN_OR_RETURN(auto sorted, DeviceBuffer<uint32_t>::Allocate(scratch, stream, occurrences));
  SOK_ASSIGN_OR_RETURN(auto positions, DeviceBuffer<int32_t>::Allocate(scratch, stream, occurrences));
  SOK_RETURN_IF_ERROR(
      Launch("Positions", stream, ShapeFor(occurrences), PositionsKernel, occurrences, positions.data()));
  SOK_RETURN_IF_ERROR(StableSort(stream, scratch, occurrences, unique,
                                 reinterpret_cast<const uint32_t*>(inverse), positions.data(), sorted.data(),
                                 segments.positions));
  return Launch("Begins", stream, ShapeFor(occurrences + 1), BeginsKernel, sorted.data(), occurrences, unique,
                segments.begin);
}

}  // namespace sok
