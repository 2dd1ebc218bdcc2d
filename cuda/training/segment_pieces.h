// The places of the pieces of long segments in a table's scratch, found without counting the pieces first.
//
// A segment of more than kSegmentPiece occurrences is summed in pieces (cc/lookup/divisor.h). A device
// sums all pieces of all such segments in parallel, and then the segments. Each piece needs a slot of scratch
// that both passes find by arithmetic alone. Occurrences are numbered here in the order of the segments, from
// 0 in each table.
//
// The slot of a piece that starts at `start` is 2 * (start / kSegmentPiece), plus one if it is the last of
// its segment. No two pieces have the same: pieces that are not the last of their segments hold kSegmentPiece
// occurrences, so two of them do not start in the same block of that many; and before the last piece of a
// long segment there is a piece of that many which belongs to the same segment.
#ifndef SOK_CUDA_TRAINING_SEGMENT_PIECES_H_
#define SOK_CUDA_TRAINING_SEGMENT_PIECES_H_

#include <cstdint>

#include "cc/base/host_device.h"
#include "cc/lookup/divisor.h"
#include "cuda/base/parts.h"

namespace sok {

// Some consecutive occurrences.
struct PieceRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// The number of slots of a table with this many occurrences; 0 if it cannot have a long segment.
inline int64_t PieceSlots(int64_t occurrences) {
  return occurrences <= kSegmentPiece ? 0 : 2 * ((occurrences + kSegmentPiece - 1) / kSegmentPiece);
}

// The slot of the piece [start, ...) of a long segment that ends at `end`.
SOK_HOST_DEVICE int64_t PieceSlot(int64_t start, int64_t end) {
  return 2 * (start / kSegmentPiece) + (start + kSegmentPiece >= end ? 1 : 0);
}

// The piece whose slot this is; empty if there is none. Segment s is [begin[s] - first, begin[s + 1] - first)
// of the table's `occurrences`, and there are `segments` of them.
SOK_HOST_DEVICE PieceRange PieceOfSlot(int64_t slot, const int32_t* begin, int64_t segments, int64_t first,
                                       int64_t occurrences) {
  const int64_t block = slot / 2;
  const bool last = slot % 2 != 0;
  // A piece that starts in the block and is not its segment's last one contains the block's last occurrence.
  // If a long segment's last piece starts in the block, the occurrence before the block belongs to the piece
  // before it.
  const int64_t inside = last ? block * kSegmentPiece - 1 : (block + 1) * kSegmentPiece - 1;
  if (inside < 0 || inside >= occurrences) return {};
  const int segment = PartOf(begin, static_cast<int>(segments), static_cast<int32_t>(inside + first));
  const int64_t segment_begin = begin[segment] - first;
  const int64_t segment_end = begin[segment + 1] - first;
  if (segment_end - segment_begin <= kSegmentPiece) return {};
  const int64_t number = (inside - segment_begin) / kSegmentPiece + (last ? 1 : 0);
  const int64_t start = segment_begin + number * kSegmentPiece;
  if (start >= segment_end || (start + kSegmentPiece >= segment_end) != last) return {};
  return {start, last ? segment_end : start + kSegmentPiece};
}

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_SEGMENT_PIECES_H_
