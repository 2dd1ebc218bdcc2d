#include <algorithm>

#include "cuda/base/dynamic_shared.h"
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
  int staged = 0;  // gradients that a group of lanes stages at a time
  PartPlace place;
};
struct OutputPart {
  SumsView sums;
  SumsOutput output;
  int64_t first_unique = 0;
  int64_t column = 0;
  PartPlace place;
};

// The most gradients of occurrences that a group of lanes stages at a time, and the bytes of a block for
// them.
constexpr int kMostStaged = 32;
constexpr int64_t kStagedBytes = int64_t{32} << 10;

int StagedGradients(int lanes_log2) {
  const int64_t groups = kThreadsPerBlock >> lanes_log2;
  const int64_t fit = kStagedBytes / (groups * static_cast<int64_t>(sizeof(OccurrenceGradient)));
  return static_cast<int>(std::min<int64_t>(fit, kMostStaged));
}

// One group of lanes per slot of a piece. Finding a gradient takes two loads that depend on one another. The
// lanes share that work, and stage what they find in shared memory. Pieces are long and few, so that many
// rows are read at once.
template <int kWidth>
__global__ void __launch_bounds__(kThreadsPerBlock)
    SumPieces(const __grid_constant__ PartBatch<PiecePart> batch) {
  const PiecePart& part = PartOfBlock(batch);
  const LaneGroup group(part.place);
  if (group.item() >= part.place.items) return;
  const SumsView& sums = part.sums;
  const PieceRange piece =
      PieceOfSlot(group.item(), sums.begin, part.unique, sums.first_occurrence, part.occurrences);
  const int64_t column = part.column + group.lane() * kWidth;
  // Lanes beyond the last column help to stage gradients, and sum that column again.
  const int64_t read_column = column < sums.dim ? column : sums.dim - kWidth;
  OccurrenceGradient* const staged = DynamicShared<OccurrenceGradient>() + group.in_block() * part.staged;
  Floats<kWidth> sum = EmptySum<kWidth>();
  for (int64_t first = piece.begin; first < piece.end; first += part.staged) {
    const int64_t n = piece.end - first < part.staged ? piece.end - first : part.staged;
    group.Sync();
    for (int64_t i = group.lane(); i < n; i += group.lanes()) staged[i] = GradientAt(sums, first + i);
    group.Sync();
    const auto read = [&](int64_t i, Floats<kWidth>* term, float* scale) {
      *term = LoadFloats<kWidth>(staged[i].row + read_column);
      *scale = staged[i].scale;
    };
    AddInOrder<16>(n, read, &sum);
  }
  if (piece.begin == piece.end || column >= sums.dim) return;
  StoreFloats(sum, part.pieces + group.item() * sums.dim + column);
}

// One group of lanes per output row.
template <int kWidth>
__global__ void __launch_bounds__(kThreadsPerBlock)
    WriteSums(const __grid_constant__ PartBatch<OutputPart> batch) {
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

// Adds a part for each range of columns that a group of lanes covers.
template <int kWidth, typename Part>
Status AddColumns(int64_t dim, int64_t items, Part part, int64_t shared_bytes, PartLauncher<Part>* launcher) {
  const int lanes_log2 = LanesLog2(dim, kWidth);
  for (part.column = 0; part.column < dim; part.column += int64_t{kWidth} << lanes_log2) {
    SOK_RETURN_IF_ERROR(launcher->Add(part, items, lanes_log2, shared_bytes));
  }
  return OkStatus();
}

template <int kWidth>
Status EnqueuePieces(cudaStream_t stream, Span<const TableGradients> tables, Span<const SumsView> views) {
  PartLauncher<PiecePart> launcher("SumPieces", stream, SumPieces<kWidth>);
  for (int64_t t = 0; t < tables.size(); ++t) {
    const TableGradients& table = tables[t];
    const int64_t slots = PieceSlots(table.occurrences);
    if (slots == 0 || table.in_fours != (kWidth == 4)) continue;
    const int staged = StagedGradients(LanesLog2(table.dim, kWidth));
    const PiecePart part = {
        views[t], table.unique, table.occurrences, const_cast<float*>(views[t].pieces), 0, staged, {}};
    const int64_t groups = kThreadsPerBlock >> LanesLog2(table.dim, kWidth);
    const int64_t shared_bytes = groups * staged * static_cast<int64_t>(sizeof(OccurrenceGradient));
    SOK_RETURN_IF_ERROR(AddColumns<kWidth>(table.dim, slots, part, shared_bytes, &launcher));
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
    SOK_RETURN_IF_ERROR(AddColumns<kWidth>(table.dim, output.rows, part, /*shared_bytes=*/0, &launcher));
  }
  return launcher.Launch();
}

}  // namespace

StatusOr<PieceSums> PieceSums::Enqueue(cudaStream_t stream, DeviceAllocator* scratch,
                                       const OccurrenceSegments& group, Span<const TableGradients> tables) {
  int64_t floats = 0;
  for (const TableGradients& table : tables)
    floats += (PieceSlots(table.occurrences) * table.dim + 3) / 4 * 4;
  StatusOr<DeviceBuffer<float>> pieces = DeviceBuffer<float>::Allocate(scratch, stream, floats);
  if (!pieces.ok()) return pieces.status();
  PieceSums sums;
  sums.pieces_ = std::move(pieces.value());
  const float* next = sums.pieces_.data();
  for (const TableGradients& table : tables) {
    sums.views_.push_back({group.begin + table.first_unique, group.positions, group.gradients, next,
                           table.dim, table.first_occurrence, table.divisor});
    next += (PieceSlots(table.occurrences) * table.dim + 3) / 4 * 4;
  }
  SOK_RETURN_IF_ERROR(EnqueuePieces<4>(stream, tables, sums.views_));
  SOK_RETURN_IF_ERROR(EnqueuePieces<1>(stream, tables, sums.views_));
  return StatusOr<PieceSums>(std::move(sums));
}

Status EnqueueGradientSums(cudaStream_t stream, DeviceAllocator* scratch, const OccurrenceSegments& group,
                           Span<const TableGradients> tables, Span<const SumsOutput> outputs) {
  StatusOr<PieceSums> sums = PieceSums::Enqueue(stream, scratch, group, tables);
  if (!sums.ok()) return sums.status();
  SOK_RETURN_IF_ERROR(EnqueueOutputs<4>(stream, tables, sums.value(), outputs));
  return EnqueueOutputs<1>(stream, tables, sums.value(), outputs);
}

}  // namespace sok
