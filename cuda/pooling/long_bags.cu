#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
#include "cuda/pooling/pool.h"
#include "cuda/pooling/read_row.h"

namespace sok {
namespace {

constexpr int kSummedColumns = kLanesOfWarp;  // of a block
constexpr int kReadingWarps = kThreadsPerBlock / kLanesOfWarp;
constexpr int kTermsOfWarp = 8;  // the terms of a tile that a warp reads at a time
constexpr int kTileTerms = kTermsOfWarp * kReadingWarps;
constexpr int kSharedTerms = 2 * kTileTerms * kSummedColumns;
// Without this number, ptxas would spill registers to keep more blocks resident.
constexpr int kResidentBlocks = 3;

struct LongBagsPart {
  LookupOutput lookup;
  int64_t column = 0;  // the first column that a block sums
  PartPlace place;
};

// The last of the bags that begins at or before occurrence `at`, which is in one of them or after all. The
// lanes of a warp look at 32 bags at once, as each look waits for memory. All of them must call it.
__device__ int64_t LastBagBefore(const BagsView& bags, int64_t at) {
  const int lane = static_cast<int>(threadIdx.x) % kLanesOfWarp;
  int64_t low = 0;
  int64_t high = bags.bags;
  while (high - low > 1) {
    const int64_t step = (high - low + kLanesOfWarp - 1) / kLanesOfWarp;
    const int64_t bag = low + lane * step;
    const unsigned begun = __ballot_sync(kAllLanes, bag < high && bags.begin[bag] <= at);
    // The first lane's bag has begun, and those that have are the first ones.
    low += (__popc(begun) - 1) * step;
    high = low + step < high ? low + step : high;
  }
  return low;
}

// The long bag that block number `block` of a lookup handles; negative if none. Block k looks at occurrence k
// * kLongBag. If several blocks look into the same bag, the first handles it. All lanes of a warp must call
// it.
__device__ int64_t LongBagOf(const BagsView& bags, int64_t block) {
  const int64_t at = bags.begin[0] + block * kLongBag;
  const int64_t bag = LastBagBefore(bags, at);
  const int64_t begin = bags.begin[bag];
  const int64_t end = bags.begin[bag + 1];
  return end - begin >= kLongBag && at - begin < kLongBag && at < end ? bag : -1;
}

// The sum of one column over a bag, computed by all threads of a block; the threads of the first warp end up
// with it. Terms are weighted rows, or sums of eight rows without weights.
template <bool kMayBeAbsent, bool kHalves>
class ColumnOfLongBag {
 public:
  __device__ ColumnOfLongBag(const LookupOutput& lookup, int64_t column, float* terms)
      : ids_(lookup.ids),
        bags_(lookup.bags),
        column_(column),
        warp_(static_cast<int>(threadIdx.x) / kLanesOfWarp),
        lane_(static_cast<int>(threadIdx.x) % kLanesOfWarp),
        terms_(terms) {}

  // The output of the bag of occurrences [begin, end). All threads of the block must call it.
  __device__ Floats<1> Pool(int64_t begin, int64_t end) {
    const bool weighted = bags_.weights != nullptr;
    const int64_t rows_of_term = weighted ? 1 : 8;
    const int64_t first = weighted ? begin : begin + RowsBeforeEights(end - begin);
    if (Adds()) {
      for (int64_t i = begin; i < first; ++i) sum_.v[0] += Read(i);
    }
    int tile = 0;
    for (int64_t i = first; i < end; i += kTileTerms * rows_of_term) {
      const int64_t left = (end - i) / rows_of_term;
      const int terms = left < kTileTerms ? static_cast<int>(left) : kTileTerms;
      ReadTerms(i, terms, tile);
      // Until the next barrier, only the first warp reads this tile, and no warp writes it.
      __syncthreads();
      if (Adds()) AddTerms(i, terms, tile);
      tile = 1 - tile;
    }
    weighted ? FinishWeighted(bags_.combiner, divisor_sum_, &sum_)
             : FinishUnweighted(bags_.combiner, end - begin, &sum_);
    return sum_;
  }

  // Whether this thread has a column's sum.
  __device__ bool Adds() const { return warp_ == 0 && HasColumn(); }

 private:
  __device__ bool HasColumn() const { return column_ < ids_.table.dim; }
  __device__ float Read(int64_t i) const { return ReadRow<1, kMayBeAbsent, kHalves>(ids_, i, column_).v[0]; }

  __device__ float SumOfEight(int64_t i) const {
    float rows[8];
    for (int k = 0; k < 8; ++k) rows[k] = Read(i + k);
    for (int k = 1; k < 8; ++k) rows[0] += rows[k];
    return rows[0];
  }

  __device__ float& TermOf(int tile, int term) const {
    return terms_[(tile * kTileTerms + term) * kSummedColumns + lane_];
  }

  __device__ void ReadTerms(int64_t i, int terms, int tile) const {
    if (!HasColumn()) return;
    if (bags_.weights != nullptr) return ReadWeighted(i, terms, tile);
    for (int term = warp_; term < terms; term += kReadingWarps) {
      TermOf(tile, term) = SumOfEight(i + int64_t{8} * term);
    }
  }

  // Loads all rows of the warp before waiting for them.
  __device__ void ReadWeighted(int64_t i, int terms, int tile) const {
    float rows[kTermsOfWarp];
    for (int k = 0; k < kTermsOfWarp; ++k) {
      const int term = warp_ + k * kReadingWarps;
      if (term < terms) rows[k] = bags_.weights[i + term] * Read(i + term);
    }
    for (int k = 0; k < kTermsOfWarp; ++k) {
      const int term = warp_ + k * kReadingWarps;
      if (term < terms) TermOf(tile, term) = rows[k];
    }
  }

  __device__ void AddTerms(int64_t i, int terms, int tile) {
    for (int term = 0; term < terms; ++term) {
      sum_.v[0] += TermOf(tile, term);
      if (bags_.weights != nullptr) divisor_sum_ += DivisorTerm(bags_.combiner, bags_.weights[i + term]);
    }
  }

  const OccurrenceRows& ids_;
  const BagsView& bags_;
  const int64_t column_;
  const int warp_;
  const int lane_;
  float* const terms_;
  Floats<1> sum_ = EmptySum<1>();
  float divisor_sum_ = 0.0f;
};

// `terms` and `bag_of_block` are the block's shared memory.
template <bool kMayBeAbsent, bool kHalves>
__device__ __forceinline__ void SumLongBagOf(const LongBagsPart& part, float* terms, int64_t* bag_of_block) {
  const LookupOutput& lookup = part.lookup;
  // Most blocks find none. One warp searches, because each of its loads is of 32 places far apart.
  if (threadIdx.x < kLanesOfWarp) {
    const int64_t found = LongBagOf(lookup.bags, blockIdx.x - part.place.first_block);
    if (threadIdx.x == 0) bag_of_block[0] = found;
  }
  __syncthreads();
  const int64_t bag = bag_of_block[0];
  if (bag < 0) return;
  const int64_t column = part.column + threadIdx.x % kLanesOfWarp;
  ColumnOfLongBag<kMayBeAbsent, kHalves> sum(lookup, column, terms);
  const Floats<1> pooled = sum.Pool(lookup.bags.begin[bag], lookup.bags.begin[bag + 1]);
  if (sum.Adds()) lookup.output.data[bag * lookup.output.stride + column] = pooled.v[0];
}

template <bool kMayBeAbsent>
__global__ void __launch_bounds__(kThreadsPerBlock, kResidentBlocks)
    SumLongBags(const __grid_constant__ PartBatch<LongBagsPart> batch) {
  AwaitPreviousKernels();
  __shared__ float terms[kSharedTerms];
  __shared__ int64_t bag_of_block[1];
  SumLongBagOf<kMayBeAbsent, /*kHalves=*/false>(PartOfBlock(batch), terms, bag_of_block);
}

// Of rows in 16 bits.
__global__ void __launch_bounds__(kThreadsPerBlock, kResidentBlocks)
    SumLongBagsOfHalves(const __grid_constant__ PartBatch<LongBagsPart> batch) {
  AwaitPreviousKernels();
  __shared__ float terms[kSharedTerms];
  __shared__ int64_t bag_of_block[1];
  SumLongBagOf</*kMayBeAbsent=*/true, /*kHalves=*/true>(PartOfBlock(batch), terms, bag_of_block);
}

// Launches the kernel of the lookups that `takes` says.
template <typename Takes>
Status EnqueueLongBagsOfKind(cudaStream_t stream, Span<const LookupOutput> lookups,
                             void (*kernel)(PartBatch<LongBagsPart>), const Takes& takes) {
  PartLauncher<LongBagsPart> launcher("SumLongBags", stream, kernel);
  for (const LookupOutput& lookup : lookups) {
    if (!MayHaveLongBags(lookup.bags) || !takes(lookup.ids)) continue;
    const int64_t blocks = (lookup.bags.occurrences - 1) / kLongBag + 1;
    for (int64_t column = 0; column < lookup.ids.table.dim; column += kSummedColumns) {
      // A warp is an item of the launcher, and a block has several.
      SOK_RETURN_IF_ERROR(launcher.Add({lookup, column, {}}, blocks * kReadingWarps, /*lanes_log2=*/5));
    }
  }
  return launcher.Launch();
}

}  // namespace

Status EnqueueLongBags(cudaStream_t stream, Span<const LookupOutput> lookups) {
  SOK_RETURN_IF_ERROR(EnqueueLongBagsOfKind(
      stream, lookups, SumLongBags<false>,
      [](const OccurrenceRows& ids) { return !ids.in_halves() && !ids.may_be_absent; }));
  SOK_RETURN_IF_ERROR(
      EnqueueLongBagsOfKind(stream, lookups, SumLongBags<true>,
                            [](const OccurrenceRows& ids) { return !ids.in_halves() && ids.may_be_absent; }));
  return EnqueueLongBagsOfKind(stream, lookups, SumLongBagsOfHalves,
                               [](const OccurrenceRows& ids) { return ids.in_halves(); });
}

}  // namespace sok
