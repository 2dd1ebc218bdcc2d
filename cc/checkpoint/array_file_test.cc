#include "cc/checkpoint/array_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cc/base/crc32c.h"
#include "cc/base/hash.h"
#include "cc/checkpoint/saved_checkpoint.h"
#include "cc/checkpoint/testing/memory_files.h"

namespace sok {
namespace {

TEST(ArrayTypeTest, InvalidTypesHaveNoSize) {
  EXPECT_EQ(DataBytes(ArrayType{"<f4", {3, 5}}), 60);
  EXPECT_EQ(DataBytes(ArrayType{"bfloat16", {3, 5}}), 30);
  EXPECT_EQ(DataBytes(ArrayType{"<i8", {INT64_MAX}}), -1);
  EXPECT_EQ(DataBytes(ArrayType{"<f4", {int64_t{1} << 40, int64_t{1} << 40}}), -1);
  EXPECT_EQ(DataBytes(ArrayType{"<f4", {-1}}), -1);
  EXPECT_EQ(DataBytes(ArrayType{"<f4", {}}), -1);
  EXPECT_EQ(DataBytes(ArrayType{"<f4", {1, 1, 1}}), -1);
  EXPECT_EQ(DataBytes(ArrayType{"|O", {1}}), -1);
}

class ArrayFileTest : public ::testing::Test {
 protected:
  static constexpr char kName[] = "t#0/x";

  // Writes an array beside another one.
  PlacedArray Write(const std::vector<int64_t>& values) {
    files_.RemoveAll();
    auto part = PartWriter::Create(files_, "/m");
    EXPECT_TRUE(part.ok());
    const auto other = part.value()->NewArray("t#0/y", ArrayType{"|u1", {3}});
    const auto writer =
        part.value()->NewArray(kName, ArrayType{"<i8", {static_cast<int64_t>(values.size())}});
    for (const int64_t value : values) EXPECT_TRUE(writer->Write(&value, sizeof(value)).ok());
    EXPECT_TRUE(writer->Finish().ok());
    EXPECT_TRUE(other->Write("abc", 3).ok());
    EXPECT_TRUE(other->Finish().ok());
    EXPECT_TRUE(part.value()->Finish().ok());
    const auto checkpoint = SavedCheckpoint::Open(files_, "/m");
    EXPECT_TRUE(checkpoint.ok());
    place_ = checkpoint.value()->Find(kName).value();
    return PlacedArray{writer->array(), kName, place_.shard, place_.offset};
  }
  StatusOr<std::unique_ptr<ArrayReader>> Open(const PlacedArray& array) {
    return ArrayReader::Open(std::move(files_.Open(kData).value()), kData, array);
  }
  std::string& bytes() { return *files_.AllFiles().at(kData); }

  static constexpr char kData[] = "/m.data-00000-of-00001";
  MemoryFiles files_;
  TensorPlace place_;  // of the array in the index
};

TEST_F(ArrayFileTest, ReadsWhatWasWritten) {
  // Less than a block, exactly a block of 131072 numbers, and more.
  for (const size_t count : {size_t{0}, size_t{1}, size_t{131072}, size_t{131073}, size_t{300000}}) {
    std::vector<int64_t> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<int64_t>(i * i);
    const PlacedArray array = Write(values);
    EXPECT_EQ(array.offset, count == 0 ? 3 : 4096) << "on the page after that of the other array";
    EXPECT_EQ(static_cast<int64_t>(array.array.crc32c.size()), BlocksOf(array.array.bytes()));
    EXPECT_EQ(place_.crc32c, Crc32c(values.data(), array.array.bytes()));
    auto reader = Open(array);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    const size_t skipped = count / 3;
    ASSERT_TRUE(reader.value()->Skip(static_cast<int64_t>(skipped * 8)).ok());
    std::vector<int64_t> read(count - skipped);
    ASSERT_TRUE(reader.value()->Read(read.data(), static_cast<int64_t>(read.size() * 8)).ok());
    EXPECT_EQ(read, std::vector<int64_t>(values.begin() + static_cast<int64_t>(skipped), values.end()));
    EXPECT_EQ(reader.value()->Skip(1).code(), StatusCode::kDataLoss) << "beyond the end";
  }
}

TEST_F(ArrayFileTest, PartsOfItemsAreWritten) {
  // Parts of 12 bytes, which the ends of blocks divide; and parts of 8 bytes, which fill blocks exactly.
  for (const int64_t width : {3, 2}) {
    std::vector<float> items(4 * 200000);
    for (size_t i = 0; i < items.size(); ++i) items[i] = static_cast<float>(i);
    std::vector<const float*> records;
    std::vector<float> parts;
    for (size_t i = 0; i < items.size(); i += 4) {
      records.push_back(&items[i]);
      parts.insert(parts.end(), &items[i] + 1, &items[i] + 1 + width);
    }
    files_.RemoveAll();
    auto part = PartWriter::Create(files_, "/m");
    const auto writer = part.value()->NewArray(kName, ArrayType{"<f4", {200000, width}});
    const Span<const float* const> all(records);
    for (int64_t first = 0; first < 200000; first += 80000) {
      const int64_t count = std::min<int64_t>(80000, 200000 - first);
      ASSERT_TRUE(writer->WriteFromEach(all.subspan(first, count), 1, width).ok());
    }
    EXPECT_EQ(writer->WriteFromEach(all.subspan(0, 1), 1, width).code(), StatusCode::kInternal);
    ASSERT_TRUE(writer->Finish().ok());
    EXPECT_EQ(bytes().compare(0, std::string::npos, reinterpret_cast<const char*>(parts.data()),
                              parts.size() * sizeof(float)),
              0);
  }
}

// Sizes around that of a window of 256 KiB, a large array between small ones, and none of the arrays in
// order.
TEST_F(ArrayFileTest, ArraysSideBySideKeepTheirBytes) {
  files_.RemoveAll();
  auto part = PartWriter::Create(files_, "/m");
  const int64_t sizes[] = {1, 262144 - 4096, 5,       700000,  0, 262144, (8 << 20) + 3,
                           3, 262143,        1048575, 1048576, 9};
  std::map<std::string, std::string> written;
  const auto fill = [](int64_t bytes, int64_t seed) {
    std::string text(static_cast<size_t>(bytes), '\0');
    for (size_t i = 0; i < text.size(); ++i)
      text[i] = static_cast<char>(Mix64(i / 8 + 1000003 * seed) % 255 + 1);
    return text;
  };
  for (int64_t table = 0; table < 3; ++table) {
    std::vector<std::pair<std::string, std::unique_ptr<ArrayWriter>>> arrays;
    for (const int64_t bytes : sizes) {
      const std::string name = StrCat("t", table, "#0/", arrays.size());
      written[name] = fill(bytes, static_cast<int64_t>(written.size()));
      arrays.emplace_back(name, part.value()->NewArray(name, ArrayType{"|u1", {bytes}}));
    }
    std::reverse(arrays.begin(), arrays.end());
    for (const auto& [name, array] : arrays) {
      const std::string& text = written[name];
      const int64_t half = static_cast<int64_t>(text.size() / 2);
      ASSERT_TRUE(array->Write(text.data(), half).ok());
      ASSERT_TRUE(part.value()->WriteComplete().ok());
      ASSERT_TRUE(array->Write(text.data() + half, static_cast<int64_t>(text.size()) - half).ok());
      ASSERT_TRUE(array->Finish().ok());
    }
    const std::string name = StrCat("t", table);
    written[name] = fill(table * 300000, table);
    ASSERT_TRUE(part.value()->AddString(name, written[name]).ok());
  }
  ASSERT_TRUE(part.value()->Finish().ok());
  const auto checkpoint = SavedCheckpoint::Open(files_, "/m");
  ASSERT_TRUE(checkpoint.ok());
  std::string gaps = bytes();
  for (const auto& [name, text] : written) {
    const TensorPlace place = checkpoint.value()->Find(name).value();
    gaps.replace(static_cast<size_t>(place.offset), static_cast<size_t>(place.bytes),
                 static_cast<size_t>(place.bytes), '\0');
    if (place.dtype == kStringDtype) {
      EXPECT_TRUE(checkpoint.value()->ReadString(name).value() == text) << name;
      continue;
    }
    EXPECT_TRUE(bytes().compare(static_cast<size_t>(place.offset), text.size(), text) == 0) << name;
    EXPECT_EQ(place.crc32c, Crc32c(text)) << name;
    const int64_t multiple = place.bytes > 8 << 20 ? kBlockBytes : place.bytes > 0 ? 4096 : 1;
    EXPECT_EQ(place.offset % multiple, 0) << name;
  }
  EXPECT_EQ(gaps.find_first_not_of('\0'), std::string::npos) << "what is between tensors is zero";
}

TEST_F(ArrayFileTest, DamageIsFoundInItsBlock) {
  const PlacedArray array = Write(std::vector<int64_t>(300000, 7));
  bytes()[4096 + (2 << 20)] ^= 1;
  auto reader = Open(array);
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(reader.value()->Skip(2 << 20).ok()) << "blocks before it are good";
  const Status status = reader.value()->Skip(1);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("/m.data-00000-of-00001:t#0/x"), std::string::npos) << status.message();
}

TEST_F(ArrayFileTest, AFileThatEndsBeforeTheArrayIsRefused) {
  const PlacedArray array = Write({1, 2, 3});
  bytes().pop_back();
  EXPECT_EQ(Open(array).status().code(), StatusCode::kDataLoss);
}

TEST_F(ArrayFileTest, AnotherNumberOfBytesIsAnError) {
  auto part = PartWriter::Create(files_, "/n");
  const int64_t value = 1;
  const auto few = part.value()->NewArray("few", ArrayType{"<i8", {2}});
  ASSERT_TRUE(few->Write(&value, 8).ok());
  EXPECT_EQ(few->Finish().code(), StatusCode::kInternal);
  const auto many = part.value()->NewArray("many", ArrayType{"<i8", {1}});
  ASSERT_TRUE(many->Write(&value, 8).ok());
  EXPECT_EQ(many->Write(&value, 8).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace sok
