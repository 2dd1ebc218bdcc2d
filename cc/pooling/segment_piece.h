#ifndef SOK_CC_POOLING_SEGMENT_PIECE_H_
#define SOK_CC_POOLING_SEGMENT_PIECE_H_

#include <cstdint>

namespace sok {

// The occurrences of an id are summed in pieces of this many: each piece in order from its first occurrence,
// and then the sums of the pieces in order. Engines may sum pieces in parallel, which keeps many threads busy
// when one id has most of a batch's occurrences.
constexpr int64_t kSegmentPiece = 256;

}  // namespace sok

#endif  // SOK_CC_POOLING_SEGMENT_PIECE_H_
