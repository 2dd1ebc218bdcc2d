#include "cc/pooling/divisor.h"
#include "cuda/pooling/finish_sum.h"
#include "cuda/pooling/long_bags.h"
#include "cuda/pooling/pool.h"
#include "cuda/pooling/read_row.h"
#include "cuda/rows/floats.h"
#include "cuda/rows/part_launch.h"

namespace sok {
namespace {

// The number of consecutive rows that a group of lanes copies together if nothing is pooled, so that it waits
// for all of them at once.
constexpr int64_t kGatheredRows = 4;

struct PoolPart {
  LookupOutput lookup;
  int64_t column = 0;  // the first column that a group of lanes writes
  PartPlace place;
};

// The sum over the rows of a bag, for a few adjacent columns. Reads several rows at a time, so that a lane
// waits for all of them at once, and adds them in the order that PoolForward documents.
template <int kWidth, bool kMayBeAbsent>
class BagSum {
 public:
  __device__ BagSum(const LookupOutput& lookup, int64_t column)
      : ids_(lookup.ids), bags_(lookup.bags), column_(column), sum_(EmptySum<kWidth>()) {}

  // The output of the bag of occurrences [begin, end).
  __device__ Floats<kWidth> Pool(int64_t begin, int64_t end) {
    if (begin == end) return EqualFloats<kWidth>(0.0f);
    return bags_.weights == nullptr ? Unweighted(begin, end) : Weighted(begin, end);
  }

 private:
  __device__ Floats<kWidth> Unweighted(int64_t begin, int64_t end) {
    const int64_t first_eight = begin + RowsBeforeEights(end - begin);
    AddOneByOne<false>(begin, first_eight);
    for (int64_t i = first_eight; i < end; i += 8) AddEight(i);
    FinishUnweighted(bags_.combiner, end - begin, &sum_);
    return sum_;
  }

  __device__ Floats<kWidth> Weighted(int64_t begin, int64_t end) {
    AddOneByOne<true>(begin, end);
    FinishWeighted(bags_.combiner, divisor_sum_, &sum_);
    return sum_;
  }

  template <bool kWeighted>
  __device__ void AddOneByOne(int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + 8 <= end; i += 8) AddInOrder<kWeighted, 8>(i);
    if (i + 4 <= end) i += AddInOrder<kWeighted, 4>(i);
    if (i + 2 <= end) i += AddInOrder<kWeighted, 2>(i);
    if (i < end) AddInOrder<kWeighted, 1>(i);
  }

  template <int kRows>
  __device__ __forceinline__ void Read(int64_t first, Floats<kWidth> (&rows)[kRows]) const {
    for (int k = 0; k < kRows; ++k) rows[k] = ReadRow<kWidth, kMayBeAbsent>(ids_, first + k, column_);
  }

  // Adds kRows rows one after another; returns their number.
  template <bool kWeighted, int kRows>
  __device__ __forceinline__ int AddInOrder(int64_t first) {
    Floats<kWidth> rows[kRows];
    Read(first, rows);
    for (int k = 0; k < kRows; ++k) {
      if constexpr (kWeighted) {
        const float weight = bags_.weights[first + k];
        AddScaledTo(weight, rows[k], &sum_);
        divisor_sum_ += DivisorTerm(bags_.combiner, weight);
      } else {
        AddTo(rows[k], &sum_);
      }
    }
    return kRows;
  }

  // Adds the sum of eight rows.
  __device__ __forceinline__ void AddEight(int64_t first) {
    Floats<kWidth> rows[8];
    Read(first, rows);
    for (int k = 1; k < 8; ++k) AddTo(rows[k], &rows[0]);
    AddTo(rows[0], &sum_);
  }

  const OccurrenceRows& ids_;
  const BagsView& bags_;
  const int64_t column_;
  Floats<kWidth> sum_;
  float divisor_sum_ = 0.0f;
};

template <int kWidth, bool kMayBeAbsent>
__device__ void CopyRows(const LookupOutput& lookup, int64_t first, int64_t column) {
  const int64_t left = lookup.bags.bags - first;
  const OutputRows& output = lookup.output;
  Floats<kWidth> rows[kGatheredRows];
  for (int64_t k = 0; k < kGatheredRows; ++k) {
    if (k < left) {
      rows[k] = ReadRow<kWidth, kMayBeAbsent>(lookup.ids, lookup.bags.first + first + k, column);
    }
  }
  for (int64_t k = 0; k < kGatheredRows; ++k) {
    if (k < left) StoreFloats(rows[k], output.data + (first + k) * output.stride + column);
  }
}

// A group of lanes writes some columns of a bag's output row, or of kGatheredRows rows if nothing is pooled.
// Skips long bags.
template <int kWidth, bool kMayBeAbsent>
__global__ void __launch_bounds__(kThreadsPerBlock)
    WriteOutputs(const __grid_constant__ PartBatch<PoolPart> batch) {
  const PoolPart& part = PartOfBlock(batch);
  const LaneGroup group(part.place);
  if (group.item() >= part.place.items) return;
  const LookupOutput& lookup = part.lookup;
  const int64_t item = group.item();
  const int64_t column = part.column + group.lane() * kWidth;
  if (column >= lookup.ids.table.dim) return;
  if (lookup.bags.begin == nullptr) {
    return CopyRows<kWidth, kMayBeAbsent>(lookup, item * kGatheredRows, column);
  }
  const int64_t begin = lookup.bags.begin[item];
  const int64_t end = lookup.bags.begin[item + 1];
  if (end - begin >= kLongBag && MayHaveLongBags(lookup.bags)) return;
  BagSum<kWidth, kMayBeAbsent> sum(lookup, column);
  StoreFloats(sum.Pool(begin, end), lookup.output.data + item * lookup.output.stride + column);
}

int WidthOf(const LookupOutput& lookup) {
  const RowStoreView& table = lookup.ids.table;
  const bool rows_fit = lookup.ids.records_are_aligned && table.stride % 4 == 0;
  return rows_fit && FitsFours(lookup.output.data, lookup.output.stride, table.dim) ? 4 : 1;
}

// Launches the lookups of one kind.
template <int kWidth, bool kMayBeAbsent>
Status EnqueueKind(cudaStream_t stream, Span<const LookupOutput> lookups) {
  PartLauncher<PoolPart> launcher("WriteOutputs", stream, WriteOutputs<kWidth, kMayBeAbsent>);
  for (const LookupOutput& lookup : lookups) {
    if (WidthOf(lookup) != kWidth || lookup.ids.may_be_absent != kMayBeAbsent) continue;
    const int lanes_log2 = LanesLog2(lookup.ids.table.dim, kWidth);
    const int64_t bags = lookup.bags.bags;
    const int64_t items = lookup.bags.pooled() ? bags : (bags + kGatheredRows - 1) / kGatheredRows;
    for (int64_t column = 0; column < lookup.ids.table.dim; column += int64_t{kWidth} << lanes_log2) {
      SOK_RETURN_IF_ERROR(launcher.Add({lookup, column, {}}, items, lanes_log2));
    }
  }
  return launcher.Launch();
}

}  // namespace

Status EnqueueOutputs(cudaStream_t stream, Span<const LookupOutput> lookups) {
  SOK_RETURN_IF_ERROR((EnqueueKind<4, false>(stream, lookups)));
  SOK_RETURN_IF_ERROR((EnqueueKind<4, true>(stream, lookups)));
  SOK_RETURN_IF_ERROR((EnqueueKind<1, false>(stream, lookups)));
  SOK_RETURN_IF_ERROR((EnqueueKind<1, true>(stream, lookups)));
  return EnqueueLongBags(stream, lookups);
}

}  // namespace sok
