#include "cc/lookup/divisor.h"
#include "cuda/base/dynamic_shared.h"
#include "cuda/base/floats.h"
#include "cuda/base/part_launch.h"
#include "cuda/pooling/pool.h"
#include "cuda/pooling/read_row.h"

namespace sok {
namespace {

// The number of consecutive rows that a group of lanes copies together if nothing is pooled, so that it waits
// for all of them at once.
constexpr int64_t kGatheredRows = 4;

// The number of records that a group of lanes stages at a time: at least the most rows that are added before
// the eights.
constexpr int kStagedRecords = 16;

// The number of resident blocks to compile for: more blocks wait for more rows at once. Initial values need
// more registers than that many blocks would leave.
template <int kWidth, bool kMayBeAbsent>
constexpr int kResidentOutputs = kMayBeAbsent  ? 2
                                 : kWidth == 4 ? 5
                                               : 4;

struct PoolPart {
  LookupOutput lookup;
  int64_t column = 0;  // the first column that a group of lanes writes
  PartPlace place;
};

// The sum over the rows of a bag, computed by a group of lanes, each for a few adjacent columns. A lane reads
// several rows at a time, so that it waits for all of them at once, and adds them in the order that
// PoolForward documents.
//
// A row's address takes three loads that depend on one another. The lanes share that work: each finds the
// records of some occurrences and stages them in shared memory.
template <int kWidth, bool kMayBeAbsent>
class BagSum {
 public:
  // `records` is the group's shared memory, [kStagedRecords].
  __device__ BagSum(const LookupOutput& lookup, const LaneGroup& group, int32_t column, const float** records)
      : ids_(lookup.ids),
        bags_(lookup.bags),
        group_(group),
        column_(column),
        records_(records),
        sum_(EmptySum<kWidth>()) {}

  // The output of the bag of occurrences [begin, end). All lanes of the group must call it.
  __device__ Floats<kWidth> Pool(int32_t begin, int32_t end) {
    if (begin == end) return EqualFloats<kWidth>(0.0f);
    return bags_.weights == nullptr ? Unweighted(begin, end) : Weighted(begin, end);
  }

 private:
  __device__ Floats<kWidth> Unweighted(int32_t begin, int32_t end) {
    const auto before = static_cast<int32_t>(RowsBeforeEights(end - begin));
    // As many eights as fit after the rows that are added one by one.
    int32_t stop = Stage(begin, end, before + (kStagedRecords - before) / 8 * 8);
    AddOneByOne<false>(begin, begin + before);
    int32_t i = begin + before;
    while (true) {
      for (; i < stop; i += 8) AddEight(i);
      if (i == end) break;
      stop = Stage(i, end, kStagedRecords);
    }
    FinishUnweighted(bags_.combiner, end - begin, &sum_);
    return sum_;
  }

  __device__ Floats<kWidth> Weighted(int32_t begin, int32_t end) {
    for (int32_t i = begin; i < end;) {
      const int32_t stop = Stage(i, end, kStagedRecords);
      AddOneByOne<true>(i, stop);
      i = stop;
    }
    FinishWeighted(bags_.combiner, divisor_sum_, &sum_);
    return sum_;
  }

  // Stages the records of occurrences [begin, stop), at most `most` of those up to `end`; returns `stop`.
  __device__ int32_t Stage(int32_t begin, int32_t end, int32_t most) {
    const int32_t stop = end - begin > most ? begin + most : end;
    group_.Sync();
    for (int32_t i = group_.lane(); i < stop - begin; i += group_.lanes()) {
      records_[i] = RecordOf<kMayBeAbsent>(ids_, begin + i);
    }
    group_.Sync();
    staged_ = begin;
    return stop;
  }

  template <bool kWeighted>
  __device__ void AddOneByOne(int32_t begin, int32_t end) {
    int32_t i = begin;
    for (; end - i >= 8; i += 8) AddInOrder<kWeighted, 8>(i);
    if (end - i >= 4) i += AddInOrder<kWeighted, 4>(i);
    if (end - i >= 2) i += AddInOrder<kWeighted, 2>(i);
    if (i < end) AddInOrder<kWeighted, 1>(i);
  }

  template <int kRows>
  __device__ __forceinline__ void Read(int32_t first, Floats<kWidth> (&rows)[kRows]) const {
    for (int k = 0; k < kRows; ++k) {
      const float* const record = records_[first + k - staged_];
      rows[k] = ReadRecord<kWidth, kMayBeAbsent>(ids_, record, first + k, column_);
    }
  }

  // Adds kRows rows one after another; returns their number.
  template <bool kWeighted, int kRows>
  __device__ __forceinline__ int AddInOrder(int32_t first) {
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
  __device__ __forceinline__ void AddEight(int32_t first) {
    Floats<kWidth> rows[8];
    Read(first, rows);
    for (int k = 1; k < 8; ++k) AddTo(rows[k], &rows[0]);
    AddTo(rows[0], &sum_);
  }

  const OccurrenceRows& ids_;
  const BagsView& bags_;
  const LaneGroup& group_;
  const int32_t column_;
  const float** const records_;
  int32_t staged_ = 0;  // the occurrence of records_[0]
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
__global__ void __launch_bounds__(kThreadsPerBlock, kResidentOutputs<kWidth, kMayBeAbsent>)
    WriteOutputs(const __grid_constant__ PartBatch<PoolPart> batch) {
  const PoolPart& part = PartOfBlock(batch);
  const LaneGroup group(part.place);
  if (group.item() >= part.place.items) return;
  const LookupOutput& lookup = part.lookup;
  const int64_t item = group.item();
  const int64_t dim = lookup.ids.table.dim;
  const int64_t column = part.column + group.lane() * kWidth;
  if (lookup.bags.begin == nullptr) {
    if (column < dim) CopyRows<kWidth, kMayBeAbsent>(lookup, item * kGatheredRows, column);
    return;
  }
  const int32_t begin = lookup.bags.begin[item];
  const int32_t end = lookup.bags.begin[item + 1];
  if (end - begin >= kLongBag && MayHaveLongBags(lookup.bags)) return;
  // Lanes beyond the last column help to stage records, and sum that column again.
  BagSum<kWidth, kMayBeAbsent> sum(lookup, group, static_cast<int32_t>(column < dim ? column : dim - kWidth),
                                   DynamicShared<const float*>() + group.in_block() * kStagedRecords);
  const Floats<kWidth> pooled = sum.Pool(begin, end);
  if (column < dim) StoreFloats(pooled, lookup.output.data + item * lookup.output.stride + column);
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
    const int64_t groups = lookup.bags.pooled() ? kThreadsPerBlock >> lanes_log2 : 0;
    const int64_t shared_bytes = groups * kStagedRecords * static_cast<int64_t>(sizeof(float*));
    for (int64_t column = 0; column < lookup.ids.table.dim; column += int64_t{kWidth} << lanes_log2) {
      SOK_RETURN_IF_ERROR(launcher.Add({lookup, column, {}}, items, lanes_log2, shared_bytes));
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
