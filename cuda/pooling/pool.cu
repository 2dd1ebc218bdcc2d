#include <type_traits>

#include "cc/lookup/divisor.h"
#include "cuda/base/floats.h"
#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
#include "cuda/pooling/pool.h"
#include "cuda/pooling/read_row.h"

namespace sok {
namespace {

// The number of consecutive rows that a group of lanes copies together if nothing is pooled, so that it waits
// for all of them at once.
constexpr int kGatheredRows = 4;

// The number of rows of a bag that a group of lanes reads at a time. It divides 8, because rows are added in
// eights. With more, the threads of a multiprocessor would wait for as many bytes as its L1 cache has, and
// evict the rows of frequent ids.
constexpr int kRowsAtOnce = 4;

// The number of records that a group of lanes stages at a time, a multiple of kRowsAtOnce.
constexpr int kStagedRecords = 16;

// The threads of a block, which stays until its longest bag is summed: with few, few wait for it.
constexpr int kOutputThreads = 64;

// What a lookup does with rows. Each has a kernel of its own, which needs fewer registers than one for all.
struct Copies {
  static bool Does(const BagsView& bags) { return !bags.pooled(); }
};
struct Sums {
  static bool Does(const BagsView& bags) { return bags.pooled() && bags.weights == nullptr; }
};
struct WeightedSums {
  static bool Does(const BagsView& bags) { return bags.pooled() && bags.weights != nullptr; }
};

// The number of resident blocks to compile for: more blocks wait for more rows at once. Initial values need
// more registers than that many blocks would leave.
template <int kWidth, bool kMayBeAbsent>
constexpr int kResidentOutputs = kMayBeAbsent  ? 8
                                 : kWidth == 4 ? 20
                                               : 16;

// Whether the lookup has an `inverse`: known when a kernel is compiled, except of rows in 16 bits.
template <bool kMerged, bool kHalves>
__device__ __forceinline__ bool IsMerged(const OccurrenceRows& lookup) {
  return kHalves ? lookup.inverse != nullptr : kMerged;
}

struct PoolPart {
  LookupOutput lookup;
  int64_t column = 0;  // the first column that a group of lanes writes
  PartPlace place;
};

// The sum over the rows of a bag, computed by a group of lanes, each for a few adjacent columns. A lane reads
// kRowsAtOnce rows at a time, so that it waits for all of them at once, and adds them in the order that
// PoolForward documents. The groups of a warp take the same steps, whatever the lengths of their bags.
//
// A row's address takes three loads that depend on one another. The lanes share that work: each finds the
// records of some occurrences and stages them in shared memory.
template <int kWidth, bool kMayBeAbsent, bool kMerged, bool kHalves>
class BagSum {
 public:
  // `records` is the group's shared memory, [kStagedRecords].
  __device__ BagSum(const LookupOutput& lookup, const LaneGroup& group, int32_t column, const char** records)
      : ids_(lookup.ids),
        bags_(lookup.bags),
        group_(group),
        column_(column),
        records_(records),
        sum_(EmptySum<kWidth>()) {}

  // The output of the bag of occurrences [begin, end). All lanes of the group must call it. A step adds to a
  // term: one of all rows before the eights, then one of each eight. A complete term is added to the sum.
  __device__ Floats<kWidth> Unweighted(int32_t begin, int32_t end) {
    if (begin == end) return EqualFloats<kWidth>(0.0f);
    const auto in_eights = static_cast<int32_t>(end - begin - RowsBeforeEights(end - begin));
    Floats<kWidth> term = EmptySum<kWidth>();
    ForSteps(begin, end, [&](int32_t i, const Rows& rows) {
      for (int k = 0; k < kRowsAtOnce; ++k) AddTo(rows.of[k], &term);
      const int32_t left = end - i - kRowsAtOnce;
      if (left % 8 != 0 || left > in_eights) return;
      AddTo(term, &sum_);
      term = EmptySum<kWidth>();
    });
    FinishUnweighted(bags_.combiner, end - begin, &sum_);
    return sum_;
  }

  // The same for a bag with weights, whose rows are added one after another.
  __device__ Floats<kWidth> Weighted(int32_t begin, int32_t end) {
    if (begin == end) return EqualFloats<kWidth>(0.0f);
    float divisor_sum = 0.0f;
    ForSteps(begin, end, [&](int32_t i, const Rows& rows) {
      for (int k = 0; k < kRowsAtOnce; ++k) {
        if (i + k < begin) continue;
        const float weight = bags_.weights[i + k];
        AddScaledTo(weight, rows.of[k], &sum_);
        divisor_sum += DivisorTerm(bags_.combiner, weight);
      }
    });
    FinishWeighted(bags_.combiner, divisor_sum, &sum_);
    return sum_;
  }

 private:
  struct Rows {
    Floats<kWidth> of[kRowsAtOnce];
  };

  // Calls add(i, rows) with the rows of kRowsAtOnce occurrences from `i` on, in steps of which the last one
  // ends at `end`. What is before `begin` counts as -0, which changes no sum.
  template <typename Add>
  __device__ __forceinline__ void ForSteps(int32_t begin, int32_t end, const Add& add) {
    const int32_t first = end - (end - begin + kRowsAtOnce - 1) / kRowsAtOnce * kRowsAtOnce;
    for (int32_t i = first; i < end; i += kRowsAtOnce) {
      const int32_t at = (i - first) % kStagedRecords;
      if (at == 0) Stage(i, begin, end);
      Rows rows;
      for (int k = 0; k < kRowsAtOnce; ++k) {
        rows.of[k] = EmptySum<kWidth>();
        if (i + k < begin) continue;
        rows.of[k] = ReadRecord<kWidth, kMayBeAbsent, kHalves>(ids_, records_[at + k], i + k, column_);
      }
      add(i, rows);
    }
  }

  // Stages the records of kStagedRecords occurrences from `i` on, of those in [begin, end). A lane finds as
  // many at once as it has to.
  __device__ __forceinline__ void Stage(int32_t i, int32_t begin, int32_t end) {
    group_.Sync();
    if (group_.lanes() >= kStagedRecords) {
      StageSome<1>(i, group_.lane(), begin, end);
    } else if (2 * group_.lanes() == kStagedRecords) {
      StageSome<2>(i, group_.lane(), begin, end);
    } else {
      for (int at = group_.lane(); at < kStagedRecords && i + at < end; at += 4 * group_.lanes()) {
        StageSome<4>(i, at, begin, end);
      }
    }
    group_.Sync();
  }

  // Stages number `at` of these records, and the next kCount - 1 of this lane. Instead of occurrences beyond
  // the bag it finds its first or its last one, so that there is no branch.
  template <int kCount>
  __device__ __forceinline__ void StageSome(int32_t i, int at, int32_t begin, int32_t end) {
    int32_t occurrences[kCount];
    const char* records[kCount];
    for (int k = 0; k < kCount; ++k) {
      const int32_t occurrence = i + at + k * group_.lanes();
      occurrences[k] = occurrence < begin ? begin : occurrence < end ? occurrence : end - 1;
    }
    FindRecords<kMayBeAbsent>(ids_, IsMerged<kMerged, kHalves>(ids_), occurrences, records);
    for (int k = 0; k < kCount; ++k) {
      if (at + k * group_.lanes() < kStagedRecords) records_[at + k * group_.lanes()] = records[k];
    }
  }

  const OccurrenceRows& ids_;
  const BagsView& bags_;
  const LaneGroup& group_;
  const int32_t column_;
  const char** const records_;
  Floats<kWidth> sum_;
};

// Copies kGatheredRows rows from number `first` of the output on, or those that are left.
template <int kWidth, bool kMayBeAbsent, bool kMerged, bool kHalves>
__device__ __forceinline__ void CopyRows(const LookupOutput& lookup, int64_t first, int64_t column) {
  const int64_t left = lookup.bags.bags - first;
  const auto first_occurrence = static_cast<int32_t>(lookup.bags.first + first);
  const OutputRows& output = lookup.output;
  int32_t occurrences[kGatheredRows];
  const char* records[kGatheredRows];
  for (int k = 0; k < kGatheredRows; ++k) occurrences[k] = first_occurrence + (k < left ? k : 0);
  FindRecords<kMayBeAbsent>(lookup.ids, IsMerged<kMerged, kHalves>(lookup.ids), occurrences, records);
  if constexpr (kHalves) {
    if (lookup.ids.writes_halves) {
      Halves<kWidth> halves[kGatheredRows];
      for (int k = 0; k < kGatheredRows; ++k) {
        halves[k] = ReadHalves<kWidth, kMayBeAbsent>(lookup.ids, records[k], occurrences[k], column);
      }
      auto* const out = reinterpret_cast<uint16_t*>(output.data) + first * output.stride + column;
      for (int k = 0; k < kGatheredRows; ++k) {
        if (k < left) StoreHalves(halves[k], out + k * output.stride);
      }
      return;
    }
  }
  Floats<kWidth> rows[kGatheredRows];
  for (int k = 0; k < kGatheredRows; ++k) {
    rows[k] = ReadRecord<kWidth, kMayBeAbsent, kHalves>(lookup.ids, records[k], occurrences[k], column);
  }
  for (int k = 0; k < kGatheredRows; ++k) {
    if (k < left) StoreFloats(rows[k], output.data + (first + k) * output.stride + column);
  }
}

// Writes the columns from `column` on of the output row of bag number `bag`, unless the bag is long. All
// lanes of the group must call it.
template <typename Kind, int kWidth, bool kMayBeAbsent, bool kMerged, bool kHalves>
__device__ __forceinline__ void PoolBag(const LookupOutput& lookup, const LaneGroup& group, int64_t bag,
                                        int64_t column) {
  const int64_t dim = lookup.ids.table.dim;
  const int32_t begin = lookup.bags.begin[bag];
  const int32_t end = lookup.bags.begin[bag + 1];
  if (end - begin >= kLongBag && MayHaveLongBags(lookup.bags)) return;
  // Lanes beyond the last column help to stage records, and sum that column again.
  BagSum<kWidth, kMayBeAbsent, kMerged, kHalves> sum(
      lookup, group, static_cast<int32_t>(column < dim ? column : dim - kWidth),
      DynamicShared<const char*>() + group.in_block() * kStagedRecords);
  const Floats<kWidth> pooled =
      std::is_same_v<Kind, Sums> ? sum.Unweighted(begin, end) : sum.Weighted(begin, end);
  if (column < dim) StoreFloats(pooled, lookup.output.data + bag * lookup.output.stride + column);
}

// A group of lanes writes some columns of a bag's output row, or of kGatheredRows rows if nothing is pooled.
template <typename Kind, int kWidth, bool kMayBeAbsent, bool kMerged, bool kHalves>
__device__ __forceinline__ void WriteOutputsOf(const PoolPart& part) {
  const LaneGroup group(part.place);
  if (group.item() >= part.place.items) return;
  const int64_t column = part.column + group.lane() * kWidth;
  if constexpr (std::is_same_v<Kind, Copies>) {
    if (column >= part.lookup.ids.table.dim) return;
    CopyRows<kWidth, kMayBeAbsent, kMerged, kHalves>(part.lookup, group.item() * kGatheredRows, column);
  } else {
    PoolBag<Kind, kWidth, kMayBeAbsent, kMerged, kHalves>(part.lookup, group, group.item(), column);
  }
}

template <typename Kind, int kWidth, bool kMayBeAbsent, bool kMerged>
__global__ void __launch_bounds__(kOutputThreads,
                                  ResidentBlocks(kResidentOutputs<kWidth, kMayBeAbsent>, kOutputThreads))
    WriteOutputs(const __grid_constant__ PartBatch<PoolPart> batch) {
  AwaitPreviousKernels();
  WriteOutputsOf<Kind, kWidth, kMayBeAbsent, kMerged, /*kHalves=*/false>(PartOfBlock(batch));
}

// Of rows in 16 bits, with or without an `inverse`.
template <typename Kind, int kWidth, bool kMayBeAbsent>
__global__ void __launch_bounds__(kOutputThreads,
                                  ResidentBlocks(kResidentOutputs<kWidth, kMayBeAbsent>, kOutputThreads))
    WriteOutputsOfHalves(const __grid_constant__ PartBatch<PoolPart> batch) {
  AwaitPreviousKernels();
  WriteOutputsOf<Kind, kWidth, kMayBeAbsent, /*kMerged=*/true, /*kHalves=*/true>(PartOfBlock(batch));
}

int WidthOf(const LookupOutput& lookup) {
  const RowStoreView& table = lookup.ids.table;
  const OutputRows& output = lookup.output;
  const bool rows_fit = lookup.ids.records_are_aligned && table.dim % 4 == 0;
  // Four numbers of 16 bits take as much as two floats.
  const bool output_fits = lookup.ids.writes_halves
                               ? output.stride % 4 == 0 && reinterpret_cast<uintptr_t>(output.data) % 8 == 0
                               : FitsFours(output.data, output.stride, table.dim);
  return rows_fit && output_fits ? 4 : 1;
}

// Launches one kernel for the lookups that do this and that `takes` says.
template <typename Kind, int kWidth, typename Takes>
Status EnqueueKernel(cudaStream_t stream, Span<const LookupOutput> lookups,
                     void (*kernel)(PartBatch<PoolPart>), const Takes& takes) {
  constexpr bool kCopies = std::is_same_v<Kind, Copies>;
  PartLauncher<PoolPart> launcher("WriteOutputs", stream, kernel, kOutputThreads);
  for (const LookupOutput& lookup : lookups) {
    if (!Kind::Does(lookup.bags) || WidthOf(lookup) != kWidth || !takes(lookup.ids)) continue;
    const int lanes_log2 = LanesLog2(lookup.ids.table.dim, kWidth);
    const int64_t bags = lookup.bags.bags;
    const int64_t items = kCopies ? (bags + kGatheredRows - 1) / kGatheredRows : bags;
    const int64_t groups = kCopies ? 0 : kOutputThreads >> lanes_log2;
    const int64_t shared_bytes = groups * kStagedRecords * static_cast<int64_t>(sizeof(char*));
    for (int64_t column = 0; column < lookup.ids.table.dim; column += int64_t{kWidth} << lanes_log2) {
      SOK_RETURN_IF_ERROR(launcher.Add({lookup, column, {}}, items, lanes_log2, shared_bytes));
    }
  }
  return launcher.Launch();
}

template <int kWidth, bool kMayBeAbsent, bool kMerged>
Status EnqueueKinds(cudaStream_t stream, Span<const LookupOutput> lookups) {
  const auto takes = [](const OccurrenceRows& ids) {
    return !ids.in_halves() && ids.may_be_absent == kMayBeAbsent && (ids.inverse != nullptr) == kMerged;
  };
  SOK_RETURN_IF_ERROR((EnqueueKernel<Copies, kWidth>(
      stream, lookups, WriteOutputs<Copies, kWidth, kMayBeAbsent, kMerged>, takes)));
  SOK_RETURN_IF_ERROR((EnqueueKernel<Sums, kWidth>(
      stream, lookups, WriteOutputs<Sums, kWidth, kMayBeAbsent, kMerged>, takes)));
  return EnqueueKernel<WeightedSums, kWidth>(
      stream, lookups, WriteOutputs<WeightedSums, kWidth, kMayBeAbsent, kMerged>, takes);
}

// Of rows in 16 bits. Those that fit no vectors are rare, and have one kernel for all.
template <int kWidth, bool kMayBeAbsent>
Status EnqueueHalves(cudaStream_t stream, Span<const LookupOutput> lookups) {
  const auto takes = [](const OccurrenceRows& ids) {
    return ids.in_halves() && (ids.may_be_absent == kMayBeAbsent || kWidth == 1);
  };
  SOK_RETURN_IF_ERROR((EnqueueKernel<Copies, kWidth>(
      stream, lookups, WriteOutputsOfHalves<Copies, kWidth, kMayBeAbsent>, takes)));
  SOK_RETURN_IF_ERROR((
      EnqueueKernel<Sums, kWidth>(stream, lookups, WriteOutputsOfHalves<Sums, kWidth, kMayBeAbsent>, takes)));
  return EnqueueKernel<WeightedSums, kWidth>(stream, lookups,
                                             WriteOutputsOfHalves<WeightedSums, kWidth, kMayBeAbsent>, takes);
}

template <bool kMayBeAbsent, bool kMerged>
Status EnqueueWidths(cudaStream_t stream, Span<const LookupOutput> lookups) {
  SOK_RETURN_IF_ERROR((EnqueueKinds<4, kMayBeAbsent, kMerged>(stream, lookups)));
  return EnqueueKinds<1, kMayBeAbsent, kMerged>(stream, lookups);
}

}  // namespace

Status EnqueueOutputs(cudaStream_t stream, Span<const LookupOutput> lookups) {
  SOK_RETURN_IF_ERROR((EnqueueWidths<false, true>(stream, lookups)));
  SOK_RETURN_IF_ERROR((EnqueueWidths<true, true>(stream, lookups)));
  SOK_RETURN_IF_ERROR((EnqueueWidths<false, false>(stream, lookups)));
  SOK_RETURN_IF_ERROR((EnqueueWidths<true, false>(stream, lookups)));
  SOK_RETURN_IF_ERROR((EnqueueHalves<4, false>(stream, lookups)));
  SOK_RETURN_IF_ERROR((EnqueueHalves<4, true>(stream, lookups)));
  SOK_RETURN_IF_ERROR((EnqueueHalves<1, true>(stream, lookups)));
  return EnqueueLongBags(stream, lookups);
}

}  // namespace sok
