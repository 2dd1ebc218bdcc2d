#include "cc/checkpoint/array_file.h"

#include <gtest/gtest.h>

#include "cc/checkpoint/testing/memory_files.h"

namespace sok {
namespace {

// The expected bytes are those of numpy.save for an array of zeros.
TEST(NpyHeaderTest, EqualsThatOfNumpy) {
  const std::string header = EncodeNpyHeader(ArrayType{"<f4", {3, 16}});
  const std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 16), }";
  EXPECT_EQ(header.size(), 128u);
  EXPECT_EQ(header.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(header.substr(10), dict + std::string(117 - dict.size(), ' ') + "\n");
  EXPECT_NE(EncodeNpyHeader(ArrayType{"<i8", {7}}).find("(7,)"), std::string::npos);
  EXPECT_EQ(EncodeNpyHeader(ArrayType{"<i8", {INT64_MAX, INT64_MAX}}).size() % 64, 0u);
}

TEST(NpyHeaderTest, InvalidTypesHaveNoSize) {
  EXPECT_EQ(DataBytes(ArrayType{"<f4", {3, 5}}), 60);
  EXPECT_EQ(DataBytes(ArrayType{"<i8", {INT64_MAX}}), -1);
  EXPECT_EQ(DataBytes(ArrayType{"<f4", {int64_t{1} << 40, int64_t{1} << 40}}), -1);
  EXPECT_EQ(DataBytes(ArrayType{"<f4", {-1}}), -1);
  EXPECT_EQ(DataBytes(ArrayType{"<f4", {}}), -1);
  EXPECT_EQ(DataBytes(ArrayType{"<f4", {1, 1, 1}}), -1);
  EXPECT_EQ(DataBytes(ArrayType{"|O", {1}}), -1);
}

TEST(Crc32Test, EqualsThatOfZlib) {
  EXPECT_EQ(Crc32("123456789"), 0xcbf43926u);
  EXPECT_EQ(Crc32(""), 0u);
}

class ArrayFileTest : public ::testing::Test {
 protected:
  ArrayFile Write(const std::vector<int64_t>& values) {
    RemoveTree(files_, "/x.npy");
    auto writer =
        ArrayWriter::Create(files_, "/", "x.npy", ArrayType{"<i8", {static_cast<int64_t>(values.size())}});
    EXPECT_TRUE(writer.ok());
    for (const int64_t value : values) EXPECT_TRUE(writer.value()->Write(&value, sizeof(value)).ok());
    EXPECT_TRUE(writer.value()->Finish().ok());
    return writer.value()->array();
  }
  std::string& bytes() { return *files_.AllFiles().at("/x.npy"); }

  MemoryFiles files_;
};

TEST_F(ArrayFileTest, ReadsWhatWasWritten) {
  // Less than a block, exactly a block, and more. A block has 131072 numbers; the header takes the space of
  // 16.
  for (const size_t count : {size_t{0}, size_t{1}, size_t{131056}, size_t{131057}, size_t{300000}}) {
    std::vector<int64_t> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<int64_t>(i * i);
    const ArrayFile array = Write(values);
    EXPECT_EQ(array.bytes, static_cast<int64_t>(bytes().size()));
    EXPECT_EQ(static_cast<int64_t>(array.crc32.size()), BlocksOf(array.bytes));
    auto reader = ArrayReader::Open(files_, "/", array);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    const size_t skipped = count / 3;
    ASSERT_TRUE(reader.value()->Skip(static_cast<int64_t>(skipped * 8)).ok());
    std::vector<int64_t> read(count - skipped);
    ASSERT_TRUE(reader.value()->Read(read.data(), static_cast<int64_t>(read.size() * 8)).ok());
    EXPECT_EQ(read, std::vector<int64_t>(values.begin() + static_cast<int64_t>(skipped), values.end()));
    EXPECT_EQ(reader.value()->Skip(1).code(), StatusCode::kDataLoss) << "beyond the end";
    EXPECT_TRUE(CheckArray(files_, "/", array).ok());
  }
}

TEST_F(ArrayFileTest, DamageIsFoundInItsBlock) {
  const ArrayFile array = Write(std::vector<int64_t>(300000, 7));
  bytes()[2 << 20] ^= 1;
  auto reader = ArrayReader::Open(files_, "/", array);
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(reader.value()->Skip((2 << 20) - 128).ok()) << "blocks before it are good";
  const Status status = reader.value()->Skip(1);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("x.npy"), std::string::npos) << status.message();
}

TEST_F(ArrayFileTest, AnotherSizeOrKindIsRefused) {
  ArrayFile array = Write({1, 2, 3});
  bytes() += "x";
  EXPECT_EQ(ArrayReader::Open(files_, "/", array).status().code(), StatusCode::kDataLoss);
  bytes().pop_back();
  EXPECT_TRUE(ArrayReader::Open(files_, "/", array).ok());
  array.type.dtype = "<u8";
  EXPECT_EQ(ArrayReader::Open(files_, "/", array).status().code(), StatusCode::kDataLoss);
}

TEST_F(ArrayFileTest, TooFewNumbersAreAnError) {
  auto writer = ArrayWriter::Create(files_, "/", "x.npy", ArrayType{"<i8", {2}});
  const int64_t value = 1;
  ASSERT_TRUE(writer.value()->Write(&value, 8).ok());
  EXPECT_EQ(writer.value()->Finish().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace sok
