#include <algorithm>

#include "cuda/base/floats.h"
#include "cuda/base/part_launch.h"
#include "cuda/training/gradient_sums.h"
#include "cuda/training/sum_segment.h"

namespace sok {
namespace {

// Some columns of a table's pieces, or of its outputs.
struct PiecePart {
  SumsView sums;
  int64_t unique = 0;
  int64_t occurrences = 0;
  float* pieces = nullptr;
  int64_t column = 0;
  PartPlace place;
};
struct OutputPart {
  SumsView sums;
  SumsOutput output;
  int64_t first_unique = 0;
  int64_t column = 0;
  PartPlace place;
};

// The slots whose pieces a warp sums. The segments behind them hold about kShortSegment / 2 occurrences for
// each slot, whatever their lengths: so warps have similar work, and there are many of them.
constexpr int kSlotsOfWarp = 16;

// The rows of a column that a lane of SumPieces reads before it adds them, and the blocks to compile it for:
// 64 registers hold these rows.
constexpr int kRowsInFlight = 16;
constexpr int kResidentSums = 4;

// Sums pieces by a warp, which reads kRows rows at a time: a lane reads one column of one row. Rows of fewer
// columns than a warp has lanes take kRows lanes for each column, which exchange what they read, so that the
// terms of a column are added in order.
template <int kRows>
class PieceSum {
 public:
  static constexpr int kColumns = kLanesOfWarp / kRows;

  // `column` is that of this lane. `staged` is the warp's shared memory, [kLanesOfWarp]. All lanes must call
  // all functions. Lanes beyond the last column help, and sum that column again.
  __device__ PieceSum(const SumsView& sums, int64_t column, int lane, OccurrenceGradient* staged)
      : sums_(sums), column_(column < sums.dim ? column : sums.dim - 1), lane_(lane), staged_(staged) {}

  // The sum over the occurrences at positions[n], n > 0, the same in all lanes of a column. To find a
  // gradient takes two loads that depend on one another: each lane finds one of the next 32, and a position
  // after them, while the rows of 32 others are on their way.
  __device__ float Of(const int32_t* positions, int n) const {
    float sum = EmptySum<1>().v[0];
    OccurrenceGradient next = sums_.gradients[positions[Mine(0, n)]];
    int32_t position = positions[Mine(kLanesOfWarp, n)];
    for (int first = 0; first < n; first += kLanesOfWarp) {
      __syncwarp();
      staged_[lane_] = next;
      __syncwarp();
      next = sums_.gradients[position];
      position = positions[Mine(first + 2 * kLanesOfWarp, n)];
      const int rows = n - first < kLanesOfWarp ? n - first : kLanesOfWarp;
      for (int row = 0; row < rows; row += kRows * kLoads) Add(row, rows, &sum);
    }
    return sum;
  }

 private:
  // The loads of a lane for at most 32 rows.
  static constexpr int kLoads = kColumns < kRowsInFlight ? kColumns : kRowsInFlight;

  // This lane's occurrence among those from `first` on; the last one instead of those beyond it, so that all
  // lanes have a row that they may read.
  __device__ __forceinline__ int Mine(int first, int n) const {
    return first + lane_ < n ? first + lane_ : n - 1;
  }

  // Adds kRows * kLoads of the n staged rows, from `row` on. Rows beyond them count as -0, which changes no
  // sum.
  __device__ __forceinline__ void Add(int row, int n, float* sum) const {
    const int mine = row + lane_ / kColumns;
    float terms[kLoads];
    for (int k = 0; k < kLoads; ++k) terms[k] = staged_[mine + k * kRows].row[column_];
    for (int k = 0; k < kLoads; ++k) {
      const float term = staged_[mine + k * kRows].scale * terms[k];
      terms[k] = mine + k * kRows < n ? term : EmptySum<1>().v[0];
    }
    for (int k = 0; k < kLoads; ++k) AddRows(terms[k], sum);
  }

  // Adds the terms of kRows adjacent rows, of which this lane has one.
  __device__ __forceinline__ void AddRows(float term, float* sum) const {
    if constexpr (kRows == 1) {
      *sum += term;
    } else {
      for (int r = 0; r < kRows; ++r) *sum += __shfl_sync(kAllLanes, term, r * kColumns + lane_ % kColumns);
    }
  }

  const SumsView& sums_;
  const int64_t column_;
  const int lane_;
  OccurrenceGradient* const staged_;
};

// One warp per kSlotsOfWarp slots and 32 / kRows columns. Each lane looks for the piece of one slot; then all
// lanes sum these pieces together, one after another.
template <int kRows>
__global__ void __launch_bounds__(kThreadsPerBlock, kResidentSums)
    SumPieces(const __grid_constant__ PartBatch<PiecePart> batch) {
  AwaitPreviousKernels();
  __shared__ OccurrenceGradient staged[kThreadsPerBlock];
  const PiecePart& part = PartOfBlock(batch);
  const LaneGroup warp(part.place);
  if (warp.item() >= part.place.items) return;
  const SumsView& sums = part.sums;
  const int64_t first_slot = warp.item() * kSlotsOfWarp;
  PieceRange mine;
  if (warp.lane() < kSlotsOfWarp) {
    mine = PieceOfSlot(first_slot + warp.lane(), sums.begin, part.unique, sums.first_occurrence,
                       part.occurrences);
  }
  const int64_t column = part.column + warp.lane() % PieceSum<kRows>::kColumns;
  const PieceSum<kRows> piece(sums, column, warp.lane(), &staged[threadIdx.x - warp.lane()]);
  unsigned left = __ballot_sync(kAllLanes, mine.begin < mine.end);
  for (; left != 0; left &= left - 1) {
    const int of = __ffs(static_cast<int>(left)) - 1;
    const int64_t begin = __shfl_sync(kAllLanes, static_cast<int32_t>(mine.begin), of);
    const int n = __shfl_sync(kAllLanes, static_cast<int>(mine.end - mine.begin), of);
    const float sum = piece.Of(sums.positions + sums.first_occurrence + begin, n);
    if (warp.lane() < PieceSum<kRows>::kColumns && column < sums.dim) {
      part.pieces[(first_slot + of) * sums.dim + column] = sum;
    }
  }
}

// One group of lanes per output row.
template <int kWidth>
__global__ void __launch_bounds__(kThreadsPerBlock)
    WriteSums(const __grid_constant__ PartBatch<OutputPart> batch) {
  AwaitPreviousKernels();
  const OutputPart& part = PartOfBlock(batch);
  const LaneGroup group(part.place);
  const int64_t column = part.column + group.lane() * kWidth;
  if (group.item() >= part.place.items || column >= part.sums.dim) return;
  const int32_t* const chosen = part.output.chosen;
  const int64_t k =
      chosen == nullptr ? part.output.first + group.item() : chosen[group.item()] - part.first_unique;
  const int64_t begin = part.sums.begin[k] - part.sums.first_occurrence;
  const int64_t end = part.sums.begin[k + 1] - part.sums.first_occurrence;
  StoreFloats(SumSegment<kWidth>(part.sums, begin, end, column),
              part.output.out + group.item() * part.sums.dim + column);
}

// The rows that a warp of SumPieces reads at a time: 1, 2, 4 or 8.
int RowsOfWarp(int64_t dim) { return std::min(kLanesOfWarp >> LanesLog2(dim, /*width=*/1), 8); }

// Adds a part for each range of columns that a group of lanes covers.
template <int kWidth, typename Part>
Status AddColumns(int64_t dim, int64_t items, Part part, PartLauncher<Part>* launcher) {
  const int lanes_log2 = LanesLog2(dim, kWidth);
  for (part.column = 0; part.column < dim; part.column += int64_t{kWidth} << lanes_log2) {
    SOK_RETURN_IF_ERROR(launcher->Add(part, items, lanes_log2));
  }
  return OkStatus();
}

// For the tables whose rows are so short that a warp reads kRows of them at a time.
template <int kRows>
Status EnqueuePieces(cudaStream_t stream, Span<const TableGradients> tables, Span<const SumsView> views) {
  PartLauncher<PiecePart> launcher("SumPieces", stream, SumPieces<kRows>);
  for (int64_t t = 0; t < tables.size(); ++t) {
    const TableGradients& table = tables[t];
    const int64_t slots = PieceSlots(table.occurrences);
    if (slots == 0 || RowsOfWarp(table.dim) != kRows) continue;
    const int64_t warps = (slots + kSlotsOfWarp - 1) / kSlotsOfWarp;
    PiecePart part = {views[t], table.unique, table.occurrences, const_cast<float*>(views[t].pieces), 0, {}};
    for (; part.column < table.dim; part.column += PieceSum<kRows>::kColumns) {
      SOK_RETURN_IF_ERROR(launcher.Add(part, warps, LanesLog2(kLanesOfWarp, /*width=*/1)));
    }
  }
  return launcher.Launch();
}

template <int kWidth>
Status EnqueueOutputs(cudaStream_t stream, Span<const TableGradients> tables, const PieceSums& sums,
                      Span<const SumsOutput> outputs) {
  PartLauncher<OutputPart> launcher("WriteSums", stream, WriteSums<kWidth>);
  for (const SumsOutput& output : outputs) {
    const TableGradients& table = tables[output.table];
    if ((table.in_fours && FitsFours(output.out, table.dim, table.dim)) != (kWidth == 4)) continue;
    const OutputPart part = {sums.view(output.table), output, table.first_unique, 0, {}};
    SOK_RETURN_IF_ERROR(AddColumns<kWidth>(table.dim, output.rows, part, &launcher));
  }
  return launcher.Launch();
}

}  // namespace

StatusOr<PieceSums> PieceSums::Enqueue(cudaStream_t stream, DeviceAllocator* scratch,
                                       const OccurrenceSegments& group, Span<const TableGradients> tables) {
  int64_t floats = 0;
  for (const TableGradients& table : tables)
    floats += (PieceSlots(table.occurrences) * table.dim + 3) / 4 * 4;
  SOK_ASSIGN_OR_RETURN(auto pieces, DeviceBuffer<float>::Allocate(scratch, stream, floats));
  PieceSums sums;
  sums.pieces_ = std::move(pieces);
  const float* next = sums.pieces_.data();
  for (const TableGradients& table : tables) {
    sums.views_.push_back({group.begin + table.first_unique, group.positions, group.gradients, next,
                           table.dim, table.first_occurrence, table.divisor});
    next += (PieceSlots(table.occurrences) * table.dim + 3) / 4 * 4;
  }
  SOK_RETURN_IF_ERROR(EnqueuePieces<1>(stream, tables, sums.views_));
  SOK_RETURN_IF_ERROR(EnqueuePieces<2>(stream, tables, sums.views_));
  SOK_RETURN_IF_ERROR(EnqueuePieces<4>(stream, tables, sums.views_));
  SOK_RETURN_IF_ERROR(EnqueuePieces<8>(stream, tables, sums.views_));
  return StatusOr<PieceSums>(std::move(sums));
}

Status EnqueueGradientSums(cudaStream_t stream, DeviceAllocator* scratch, const OccurrenceSegments& group,
                           Span<const TableGradients> tables, Span<const SumsOutput> outputs) {
  SOK_ASSIGN_OR_RETURN(PieceSums sums, PieceSums::Enqueue(stream, scratch, group, tables));
  SOK_RETURN_IF_ERROR(EnqueueOutputs<4>(stream, tables, sums, outputs));
  return EnqueueOutputs<1>(stream, tables, sums, outputs);
}

}  // namespace sok
