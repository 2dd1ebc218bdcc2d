#include "cuda/training/gradient_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "cuda/base/allocators.h"
#include "cuda/pooling/testing/device_lookup.h"
#include "cuda/training/segment_pieces.h"
#include "cuda/training/testing/device_gradients.h"

namespace sok {
namespace {

class GradientSumsTest : public ::testing::Test {
 protected:
  // Sums of all ids, ordered by table.
  void ExpectSums(const std::vector<TableOccurrences>& tables) {
    const DeviceGradients gradients(tables, /*seed=*/1);
    std::vector<float> expected;
    std::vector<int64_t> first;
    for (size_t t = 0; t < tables.size(); ++t) {
      expected.resize((expected.size() + 3) / 4 * 4, kUnwritten);
      first.push_back(static_cast<int64_t>(expected.size()));
      expected.insert(expected.end(), gradients.expected(t).begin(), gradients.expected(t).end());
    }
    DeviceArray<float> out(std::vector<float>(expected.size(), kUnwritten));
    std::vector<SumsOutput> outputs;
    for (size_t t = 0; t < tables.size(); ++t) {
      outputs.push_back({static_cast<int64_t>(t), nullptr, tables[t].unique, out.data() + first[t]});
    }
    const Status status =
        EnqueueGradientSums(nullptr, &allocator_, gradients.group(), gradients.tables(), outputs);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(BitsOf(out.Fetch()), BitsOf(expected));
  }

  static constexpr float kUnwritten = 77.0f;
  AsyncAllocator allocator_;
};

TEST_F(GradientSumsTest, EveryDim) {
  std::vector<TableOccurrences> tables;
  for (const int64_t dim : {1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 64, 100, 128, 256, 1000}) {
    tables.push_back(SkewedOccurrences(dim, dim < 100 ? 40 : 6, dim < 100 ? 120 : 14, /*seed=*/3));
    tables.back().scaled = dim % 3 != 0;
    tables.back().aligned = dim % 32 != 0;
    tables.back().divisor = dim % 2 == 0 ? 1.0f : 3.0f;
  }
  ExpectSums(tables);
}

// Segments of several pieces, of a part of one, and short ones between them, for each number of rows that a
// warp reads at a time.
TEST_F(GradientSumsTest, HotIds) {
  for (const int64_t dim : {1, 4, 6, 12, 16, 132}) {
    std::vector<TableOccurrences> tables;
    tables.push_back(SkewedOccurrences(dim, 30, 1500, /*seed=*/3));
    TableOccurrences all_equal;
    all_equal.dim = dim;
    all_equal.unique = 1;
    for (const int64_t count : {31, 32, 33, 64, 65, 255, 256, 257, 513}) {
      all_equal.inverse.assign(static_cast<size_t>(count), 0);
      tables.push_back(all_equal);
    }
    ExpectSums(tables);
  }
}

// The sums of pieces of one table begin where those of the table before end, rounded up to 16 bytes. With
// these counts an odd dim needs the rounding, and each table has a piece in its last slot.
TEST_F(GradientSumsTest, PiecesOfATableAfterAnother) {
  for (const int64_t dim : {1, 3, 5, 7}) {
    for (const int64_t count : {513, 544, 769}) {
      for (const int64_t next_dim : {1, 3, 4, 9}) {
        SCOPED_TRACE(testing::Message() << count << " of dim " << dim << ", then dim " << next_dim);
        TableOccurrences first;
        first.dim = dim;
        first.unique = 1;
        first.inverse.assign(static_cast<size_t>(count), 0);
        TableOccurrences next = first;
        next.dim = next_dim;
        ExpectSums({first, next});
      }
    }
  }
}

TEST_F(GradientSumsTest, SizesAroundABlock) {
  for (const int64_t unique : {0, 1, 2, 127, 128, 129, 256, 257}) {
    ExpectSums({SkewedOccurrences(8, unique, unique == 0 ? 0 : 300, /*seed=*/5),
                SkewedOccurrences(1, unique, unique == 0 ? 0 : unique / 2 + 1, /*seed=*/6)});
  }
}

TEST_F(GradientSumsTest, ManyTables) {
  std::vector<TableOccurrences> tables;
  for (int64_t t = 0; t < 60; ++t) tables.push_back(SkewedOccurrences(t % 3 + 3, 5, t % 11, /*seed=*/7));
  ExpectSums(tables);
}

TEST_F(GradientSumsTest, ChosenIds) {
  const std::vector<TableOccurrences> tables = {SkewedOccurrences(4, 20, 50, 1),
                                                SkewedOccurrences(3, 300, 700, 2)};
  const DeviceGradients gradients(tables, /*seed=*/1);
  std::vector<int32_t> chosen = {319, 20, 27, 100, 21};  // numbers in the group
  std::vector<float> expected;
  for (const int32_t u : chosen) {
    const auto sum = gradients.expected(1).begin() + (u - 20) * 3;
    expected.insert(expected.end(), sum, sum + 3);
  }
  DeviceArray<int32_t> device_chosen(chosen);
  DeviceArray<float> out(std::vector<float>(expected.size(), kUnwritten));
  const SumsOutput output = {1, device_chosen.data(), 5, out.data()};
  ASSERT_TRUE(EnqueueGradientSums(nullptr, &allocator_, gradients.group(), gradients.tables(),
                                  Span<const SumsOutput>(&output, 1))
                  .ok());
  EXPECT_EQ(BitsOf(out.Fetch()), BitsOf(expected));
}

TEST_F(GradientSumsTest, SeveralOutputsOfATable) {
  const std::vector<TableOccurrences> tables = {SkewedOccurrences(4, 20, 50, 1),
                                                SkewedOccurrences(3, 300, 700, 2)};
  const DeviceGradients gradients(tables, /*seed=*/1);
  const auto of_table = gradients.expected(1).begin();
  std::vector<float> expected(of_table + 3 * 7, of_table + 3 * 290);
  expected.insert(expected.end(), of_table, of_table + 3 * 5);
  DeviceArray<float> out(std::vector<float>(expected.size(), kUnwritten));
  const SumsOutput outputs[] = {
      {1, nullptr, 283, out.data(), 7}, {0, nullptr, 0, nullptr}, {1, nullptr, 5, out.data() + 3 * 283}};
  ASSERT_TRUE(EnqueueGradientSums(nullptr, &allocator_, gradients.group(), gradients.tables(),
                                  Span<const SumsOutput>(outputs, 3))
                  .ok());
  EXPECT_EQ(BitsOf(out.Fetch()), BitsOf(expected));
}

TEST_F(GradientSumsTest, OutputsMayBeUnaligned) {
  const std::vector<TableOccurrences> tables = {SkewedOccurrences(4, 20, 50, 1)};
  const DeviceGradients gradients(tables, /*seed=*/1);
  DeviceArray<float> out(std::vector<float>(81, kUnwritten));
  const SumsOutput output = {0, nullptr, 20, out.data() + 1};
  ASSERT_TRUE(EnqueueGradientSums(nullptr, &allocator_, gradients.group(), gradients.tables(),
                                  Span<const SumsOutput>(&output, 1))
                  .ok());
  std::vector<float> expected = {kUnwritten};
  expected.insert(expected.end(), gradients.expected(0).begin(), gradients.expected(0).end());
  EXPECT_EQ(BitsOf(out.Fetch()), BitsOf(expected));
}

// Checks the slots of all pieces of segments of these lengths, which follow `first` other occurrences.
void ExpectSlots(const std::vector<int64_t>& lengths, int64_t first) {
  std::vector<int32_t> begin = {static_cast<int32_t>(first)};
  for (const int64_t length : lengths) begin.push_back(static_cast<int32_t>(begin.back() + length));
  const int64_t occurrences = begin.back() - first;
  std::map<int64_t, std::pair<int64_t, int64_t>> pieces;  // by slot
  for (size_t s = 0; s < lengths.size(); ++s) {
    if (lengths[s] <= kShortSegment) continue;
    const int64_t of_segment = begin[s] - first;
    const int64_t end = begin[s + 1] - first;
    for (int64_t start = of_segment; start < end; start += kSegmentPiece) {
      const std::pair<int64_t, int64_t> piece = {start, std::min(start + kSegmentPiece, end)};
      EXPECT_TRUE(pieces.emplace(PieceSlot(start, of_segment, end), piece).second)
          << "two pieces have one slot";
    }
  }
  const int64_t slots = PieceSlots(occurrences);
  for (const auto& [slot, piece] : pieces) ASSERT_LT(slot, slots);
  // A warp may look for more slots than there are.
  for (int64_t slot = 0; slot < slots + 32; ++slot) {
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
  for (const int64_t before : {0, 1, 31, 32, 33, 64, 255, 256, 257, 511}) {
    for (const int64_t length :
         {0, 1, 31, 32, 33, 63, 64, 65, 255, 256, 257, 288, 512, 513, 1000, 1024, 1025}) {
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
      const uint64_t longest[] = {4, 80, 1200};
      lengths.push_back(static_cast<int64_t>(random() % longest[random() % 3]));
    }
    ExpectSlots(lengths, static_cast<int64_t>(random() % 1000));
  }
}

TEST(SegmentPieces, NoneIfAllSegmentsAreShort) {
  EXPECT_EQ(PieceSlots(0), 0);
  EXPECT_EQ(PieceSlots(32), 0);
  EXPECT_GT(PieceSlots(33), 0);
}

}  // namespace

}  // namespace sok
