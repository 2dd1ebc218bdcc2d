// The places of the pieces of long segments in a table's scratch, found without counting the pieces first.
//
// A segment is summed in pieces of kSegmentPiece occurrences (cc/lookup/divisor.h). Who needs the sum of a
// short segment computes it there. The pieces of all other segments are summed in parallel before. Each of
// these pieces needs a slot of scratch that both passes find by arithmetic alone. Occurrences are numbered
// here in the order of the segments, from 0 in each table, and form blocks of kShortSegment.
//
// The slot of a piece that starts at `start` is 2 * (start / kShortSegment), plus one if it is the last of
// several pieces. No two pieces have the same: the others hold more than kShortSegment occurrences, so two of
// them do not start in the same block; and before the last of several pieces there is one of kSegmentPiece.
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

// A segment of at most this many occurrences is short: one group of lanes sums it without much waiting.
constexpr int64_t kShortSegment = 32;
static_assert(kSegmentPiece > kShortSegment);

// The number of slots of a table with this many occurrences; 0 if all its segments are short.
inline int64_t PieceSlots(int64_t occurrences) {
  return occurrences <= kShortSegment ? 0 : 2 * ((occurrences + kShortSegment - 1) / kShortSegment);
}

// The slot of the piece [start, ...) of a segment [begin, end) that is not short.
SOK_HOST_DEVICE int64_t PieceSlot(int64_t start, int64_t begin, int64_t end) {
  return 2 * (start / kShortSegment) + (start > begin && start + kSegmentPiece >= end ? 1 : 0);
}

// The piece whose slot this is; empty if there is none, as beyond PieceSlots. Segment s is [begin[s] - first,
// begin[s + 1] - first) of the table's `occurrences`, and there are `segments` of them.
SOK_HOST_DEVICE PieceRange PieceOfSlot(int64_t slot, const int32_t* begin, int64_t segments, int64_t first,
                                       int64_t occurrences) {
  const int64_t block = slot / 2;
  const bool last = slot % 2 != 0;
  // A piece that starts in the block and is not the last of several contains the block's last occurrence. If
  // the last of several starts in the block, the occurrence before the block belongs to the piece before it.
  const int64_t inside = last ? block * kShortSegment - 1 : (block + 1) * kShortSegment - 1;
  if (inside < 0 || inside >= occurrences) return {};
  const int segment = PartOf(begin, static_cast<int>(segments), static_cast<int32_t>(inside + first));
  const int64_t segment_begin = begin[segment] - first;
  const int64_t segment_end = begin[segment + 1] - first;
  if (segment_end - segment_begin <= kShortSegment) return {};
  const int64_t number = (inside - segment_begin) / kSegmentPiece + (last ? 1 : 0);
  const int64_t start = segment_begin + number * kSegmentPiece;
  if (start >= segment_end || PieceSlot(start, segment_begin, segment_end) != slot) return {};
  return {start, start + kSegmentPiece < segment_end ? start + kSegmentPiece : segment_end};
}

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_SEGMENT_PIECES_H_
