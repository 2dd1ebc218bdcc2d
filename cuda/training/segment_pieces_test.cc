#include "cuda/training/segment_pieces.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

namespace sok {
namespace {

// Checks the slots of all pieces of segments of these lengths, which follow `first` other occurrences.
void ExpectSlots(const std::vector<int64_t>& lengths, int64_t first) {
  std::vector<int32_t> begin = {static_cast<int32_t>(first)};
  for (const int64_t length : lengths) begin.push_back(static_cast<int32_t>(begin.back() + length));
  const int64_t occurrences = begin.back() - first;
  std::map<int64_t, std::pair<int64_t, int64_t>> pieces;  // by slot
  for (size_t s = 0; s < lengths.size(); ++s) {
    if (lengths[s] <= kSegmentPiece) continue;
    const int64_t end = begin[s + 1] - first;
    for (int64_t start = begin[s] - first; start < end; start += kSegmentPiece) {
      const std::pair<int64_t, int64_t> piece = {start, std::min(start + kSegmentPiece, end)};
      EXPECT_TRUE(pieces.emplace(PieceSlot(start, end), piece).second) << "two pieces have one slot";
    }
  }
  const int64_t slots = PieceSlots(occurrences);
  for (const auto& [slot, piece] : pieces) ASSERT_LT(slot, slots);
  for (int64_t slot = 0; slot < slots; ++slot) {
    const PieceRange found =
        PieceOfSlot(slot, begin.data(), static_cast<int64_t>(lengths.size()), first, occurrences);
    const auto expected = pieces.find(slot);
    if (expected == pieces.end()) {
      EXPECT_EQ(found.begin, found.end) << slot;
    } else {
      EXPECT_EQ(found.begin, expected->second.first) << slot;
      EXPECT_EQ(found.end, expected->second.second) << slot;
    }
  }
}

TEST(SegmentPieces, AroundWholePieces) {
  for (const int64_t before : {0, 1, 255, 256, 257, 511}) {
    for (const int64_t length : {0, 1, 255, 256, 257, 511, 512, 513, 1000, 1024, 1025}) {
      ExpectSlots({before, length}, 0);
      ExpectSlots({before, length, 0, 1, length, length}, 77);
    }
  }
}

TEST(SegmentPieces, OfRandomSegments) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> lengths;
    for (int64_t s = 0; s < 40; ++s) {
      lengths.push_back(static_cast<int64_t>(random() % (random() % 3 == 0 ? 1200 : 4)));
    }
    ExpectSlots(lengths, static_cast<int64_t>(random() % 1000));
  }
}

TEST(SegmentPieces, NoneWithoutALongSegment) {
  EXPECT_EQ(PieceSlots(0), 0);
  EXPECT_EQ(PieceSlots(256), 0);
  EXPECT_GT(PieceSlots(257), 0);
}

}  // namespace
}  // namespace sok
