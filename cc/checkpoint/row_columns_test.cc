#include "cc/checkpoint/row_columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "cc/base/crc32c.h"
#include "cc/checkpoint/testing/memory_files.h"

namespace sok {
namespace {

class FloatColumnTest : public ::testing::Test {
 protected:
  static constexpr char kData[] = "/m.data-00000-of-00001";

  // Writes an array of rows.
  void Write(int64_t rows, int64_t width) {
    rows_ = rows;
    width_ = width;
    values_.resize(static_cast<size_t>(rows * width));
    for (float& value : values_) value = static_cast<float>(random_() % 1000);
    files_.RemoveAll();
    auto part = PartWriter::Create(files_, "/m");
    const auto writer = part.value()->NewArray("t#0/values", ArrayType{"<f4", {rows, width}});
    ASSERT_TRUE(writer->Write(values_.data(), bytes()).ok());
    ASSERT_TRUE(writer->Finish().ok());
    ASSERT_TRUE(part.value()->Finish().ok());
    checkpoint_ = SavedCheckpoint::Open(files_, "/m").value();
    const TensorPlace place = checkpoint_->Find("t#0/values").value();
    manifest_.shards.resize(1);
    array() = PlacedArray{writer->array(), "t#0/values", place.shard, place.offset};
  }
  int64_t bytes() const { return static_cast<int64_t>(values_.size() * sizeof(float)); }
  PlacedArray& array() { return manifest_.shards[0].arrays["values"]; }
  std::string& file() { return *files_.AllFiles().at(kData); }

  // As in the checkpoint of another system: one checksum of all bytes.
  void UseOneChecksum() {
    array().whole_crc32c = Crc32c(values_.data(), bytes());
    array().array.crc32c.clear();
  }

  // Reads all rows into records with a float before and after them, in pieces that end at the given rows, the
  // blocks of each piece in random order. Every third row is passed over if `some`.
  Status Read(const std::vector<int64_t>& ends, bool some) {
    const int64_t stride = width_ + 2;
    records_.assign(static_cast<size_t>(rows_ * stride), -1.0f);
    SOK_ASSIGN_OR_RETURN(auto column, FloatColumn::Open({*checkpoint_, manifest_, 0}, "values", 1, width_));
    std::vector<char> buffer(static_cast<size_t>(kBlockBytes));
    int64_t first = 0;
    for (const int64_t end : ends) {
      PieceOfKeys piece;
      piece.all.resize(static_cast<size_t>(end - first));
      std::vector<float*> records;
      for (int64_t row = first; row < end; ++row) {
        records.push_back(some && row % 3 == 0 ? nullptr : &records_[static_cast<size_t>(row * stride)]);
      }
      SOK_RETURN_IF_ERROR(column->BeginPiece(piece));
      std::vector<int64_t> blocks(static_cast<size_t>(column->blocks()));
      std::iota(blocks.begin(), blocks.end(), 0);
      std::shuffle(blocks.begin(), blocks.end(), random_);
      for (const int64_t block : blocks) {
        SOK_RETURN_IF_ERROR(column->Read(block, piece, records, buffer.data()));
      }
      SOK_RETURN_IF_ERROR(column->EndPiece());
      first = end;
    }
    return OkStatus();
  }

  void ExpectRead(bool some) const {
    std::vector<float> expected(records_.size(), -1.0f);
    for (int64_t row = 0; row < rows_; ++row) {
      if (some && row % 3 == 0) continue;
      std::copy_n(&values_[static_cast<size_t>(row * width_)], width_,
                  &expected[static_cast<size_t>(row * (width_ + 2) + 1)]);
    }
    EXPECT_TRUE(records_ == expected);
  }

  // Ends of pieces, some of which lie in one block, and of some that end with a block.
  std::vector<int64_t> RandomEnds() {
    std::vector<int64_t> ends;
    const int64_t rows_of_block = std::max<int64_t>(1, kBlockBytes / 4 / width_);
    for (int64_t end = 0; end < rows_;) {
      switch (random_() % 3) {
        case 0:
          end += 1 + static_cast<int64_t>(random_() % 20);
          break;
        case 1:
          end += 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(3 * rows_of_block));
          break;
        default:
          end = (end / rows_of_block + 1) * rows_of_block;
      }
      ends.push_back(std::min(end, rows_));
    }
    return ends;
  }

  std::mt19937_64 random_{7};
  MemoryFiles files_;
  std::shared_ptr<SavedCheckpoint> checkpoint_;
  Manifest manifest_;
  int64_t rows_ = 0;
  int64_t width_ = 0;
  std::vector<float> values_;
  std::vector<float> records_;
};

// Rows of 16 floats, which are copied by vectors, rows that lie in two blocks, and rows longer than a block.
TEST_F(FloatColumnTest, RowsAreThoseOfTheArray) {
  for (const auto& [rows, width] :
       {std::pair<int64_t, int64_t>{100000, 16}, {300001, 3}, {7, 300000}, {70000, 20}, {1, 1}}) {
    for (const bool one_checksum : {false, true}) {
      Write(rows, width);
      if (one_checksum) UseOneChecksum();
      for (const bool some : {false, true}) {
        for (int i = 0; i < 5; ++i) {
          const Status status = Read(i == 0 ? std::vector<int64_t>{rows} : RandomEnds(), some);
          ASSERT_TRUE(status.ok()) << status.message();
          ExpectRead(some);
        }
      }
    }
  }
}

TEST_F(FloatColumnTest, DamageOfAnyBlockIsFound) {
  Write(50000, 20);
  const int64_t blocks = BlocksOf(bytes());
  ASSERT_GT(blocks, 3);
  for (const bool one_checksum : {false, true}) {
    if (one_checksum) UseOneChecksum();
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t in_block = std::min(kBlockBytes, bytes() - block * kBlockBytes);
      const auto at = static_cast<size_t>(array().offset + block * kBlockBytes) +
                      random_() % static_cast<uint64_t>(in_block);
      file()[at] ^= 1;
      const Status status = Read(RandomEnds(), true);
      file()[at] ^= 1;
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << block;
      EXPECT_NE(status.message().find("/m.data-00000-of-00001:t#0/values' is damaged"), std::string::npos)
          << status.message();
    }
    EXPECT_TRUE(Read(RandomEnds(), true).ok());
  }
}

// The disk reads the next blocks while those of a piece are in work: those of the next piece, or, if a piece
// has more, four in advance.
TEST_F(FloatColumnTest, TheNextBlocksAreReadAhead) {
  Write(100000, 16);
  const int64_t rows_of_block = kBlockBytes / 64;
  ASSERT_EQ(BlocksOf(bytes()), 7);
  const auto expect_ahead_from = [&](int64_t first, const std::vector<int64_t>& ends) {
    const size_t before = files_.ReadAheads().size();
    ASSERT_TRUE(Read(ends, false).ok());
    std::vector<int64_t> ahead = files_.ReadAheads();
    ahead.erase(ahead.begin(), ahead.begin() + before);
    std::sort(ahead.begin(), ahead.end());
    std::vector<int64_t> expected;
    for (int64_t block = first; block < 7; ++block) expected.push_back(array().offset + block * kBlockBytes);
    EXPECT_EQ(ahead, expected);
  };
  expect_ahead_from(2, {2 * rows_of_block, 4 * rows_of_block, 6 * rows_of_block, rows_});
  expect_ahead_from(4, {rows_});
}

TEST_F(FloatColumnTest, MoreRowsThanTheArrayHasAreAnError) {
  Write(100, 4);
  auto column = FloatColumn::Open({*checkpoint_, manifest_, 0}, "values", 0, 4);
  ASSERT_TRUE(column.ok());
  PieceOfKeys piece;
  piece.all.resize(101);
  EXPECT_EQ(column.value()->BeginPiece(piece).code(), StatusCode::kDataLoss);
}

TEST_F(FloatColumnTest, AFileThatEndsBeforeTheArrayIsRefused) {
  Write(100, 4);
  file().resize(static_cast<size_t>(array().offset + bytes() - 1));
  checkpoint_ = SavedCheckpoint::Open(files_, "/m").value();
  EXPECT_EQ(FloatColumn::Open({*checkpoint_, manifest_, 0}, "values", 0, 4).status().code(),
            StatusCode::kDataLoss);
}

}  // namespace
}  // namespace sok
