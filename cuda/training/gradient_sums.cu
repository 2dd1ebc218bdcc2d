#include "cuda/rows/floats.h"
#include "cuda/rows/part_launch.h"
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

// One group of lanes per slot of a piece.
template <int kWidth>
__global__ void __launch_bounds__(kThreadsPerBlock)
    SumPieces(const __grid_constant__ PartBatch<PiecePart> batch) {
  const PiecePart& part = PartOfBlock(batch);
  const LaneGroup group(part.place);
  const int64_t column = part.column + group.lane() * kWidth;
  if (group.item() >= part.place.items || column >= part.sums.dim) return;
  const PieceRange piece =
      PieceOfSlot(group.item(), part.sums.begin, part.unique, part.sums.first_occurrence, part.occurrences);
  if (piece.begin == piece.end) return;
  StoreFloats(SumPiece<kWidth>(part.sums, piece.begin, piece.end, column),
              part.pieces + group.item() * part.sums.dim + column);
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
  StoreFloats(SumSegment<kWidth>(part.sums, k, column),
              part.output.out + group.item() * part.sums.dim + column);
}

// Adds a part for each range of columns that a group of lanes covers.
template <int kWidth, typename Part>
Status AddColumns(int64_t dim, int64_t items, Part part, PartLauncher<Part>* launcher) {
  const int lanes_log2 = LanesLog2(dim, kWidth);
  for (part.column = 0; part.column < dim; part.column += int64_t{kWidth} << lanes_log2) {
    SOK_RETURN_IF_ERROR(launcher->Add(part, items, lanes_log2));
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
    const PiecePart part = {views[t], table.unique, table.occurrences, const_cast<float*>(views[t].pieces), 0,
                            {}};
    SOK_RETURN_IF_ERROR(AddColumns<kWidth>(table.dim, slots, part, &launcher));
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
