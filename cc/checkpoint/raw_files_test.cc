#include "cc/checkpoint/raw_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

namespace sok {
namespace {

namespace fs = std::filesystem;

class RawFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory_);
  }

  Status Write(const std::vector<int64_t>& keys, const std::vector<float>& rows, int64_t dim,
               const std::string& name = "table") {
    const RawFilesWriter writer(directory_.string(), name, static_cast<int64_t>(keys.size()), dim);
    SOK_RETURN_IF_ERROR(writer.Begin());
    SOK_RETURN_IF_ERROR(writer.Write(0, keys, [&](int64_t row) { return rows.data() + row * dim; }));
    return writer.Publish();
  }
  StatusOr<RawFilesReader> Open(int64_t dim, const std::string& name = "table") {
    return RawFilesReader::Open(directory_.string(), name, dim);
  }
  static std::string Bytes(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  static void Overwrite(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  fs::path directory_;
};

TEST_F(RawFilesTest, KeepsKeysAndRows) {
  const std::vector<int64_t> keys = {0, -1, (int64_t{1} << 32) + 1, INT64_MAX, INT64_MIN};
  std::vector<float> rows(keys.size() * 3);
  std::iota(rows.begin(), rows.end(), 0.5f);
  ASSERT_TRUE(Write(keys, rows, 3).ok());

  StatusOr<RawFilesReader> reader = Open(3);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  ASSERT_EQ(reader.value().num_rows(), 5);
  std::vector<int64_t> read_keys;
  ASSERT_TRUE(reader.value().ReadKeys(&read_keys).ok());
  EXPECT_EQ(read_keys, keys);
  std::vector<float> read_rows(rows.size());
  ASSERT_TRUE(reader.value().ReadValues(Span<float>(read_rows).subspan(0, 6)).ok());
  ASSERT_TRUE(reader.value().ReadValues(Span<float>(read_rows).subspan(6, 9)).ok());
  EXPECT_EQ(read_rows, rows);
}

TEST_F(RawFilesTest, AreBareLittleEndianArrays) {
  ASSERT_TRUE(Write({258}, {1.0f}, 1).ok());
  EXPECT_EQ(Bytes(directory_ / "table_keys.file"), std::string("\x02\x01\0\0\0\0\0\0", 8));
  EXPECT_EQ(Bytes(directory_ / "table_values.file"), std::string("\0\0\x80\x3f", 4));
}

TEST_F(RawFilesTest, WritersOfSomeRowsEachMakeOneTable) {
  const std::vector<int64_t> keys = {10, 20, 30, 40, 50};
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const RawFilesWriter writer(directory_.string(), "table", 5, 2);
  ASSERT_TRUE(writer.Begin().ok());
  const auto write = [&](int64_t first, int64_t count) {
    return writer.Write(first, Span<const int64_t>(keys).subspan(first, count),
                        [&](int64_t row) { return rows.data() + (first + row) * 2; });
  };
  ASSERT_TRUE(write(3, 2).ok());
  ASSERT_TRUE(write(3, 0).ok());
  EXPECT_EQ(Open(2).status().code(), StatusCode::kNotFound) << "before they are published";
  ASSERT_TRUE(write(0, 3).ok());
  ASSERT_TRUE(writer.Publish().ok());
  StatusOr<RawFilesReader> reader = Open(2);
  ASSERT_TRUE(reader.ok());
  std::vector<int64_t> read_keys;
  ASSERT_TRUE(reader.value().ReadKeys(&read_keys).ok());
  EXPECT_EQ(read_keys, keys);
  std::vector<float> read_rows(rows.size());
  ASSERT_TRUE(reader.value().ReadValues(Span<float>(read_rows)).ok());
  EXPECT_EQ(read_rows, rows);
}

TEST_F(RawFilesTest, AWriterThatNobodyHasBegunForIsNotFound) {
  const RawFilesWriter writer(directory_.string(), "table", 1, 1);
  const std::vector<int64_t> keys = {1};
  const float row = 2;
  EXPECT_EQ(writer.Write(0, keys, [&](int64_t) { return &row; }).code(), StatusCode::kNotFound);
}

TEST_F(RawFilesTest, AnAbandonedWriterLeavesWhatWasThere) {
  ASSERT_TRUE(Write({1}, {2.0f}, 1).ok());
  const RawFilesWriter writer(directory_.string(), "table", 9, 1);
  ASSERT_TRUE(writer.Begin().ok());
  writer.Abandon();
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 2);
  EXPECT_EQ(Open(1).value().num_rows(), 1);
}

TEST_F(RawFilesTest, ManyRowsGoThroughTheBuffer) {
  std::vector<int64_t> keys(300001);
  std::iota(keys.begin(), keys.end(), -7);
  std::vector<float> rows(keys.begin(), keys.end());
  ASSERT_TRUE(Write(keys, rows, 1).ok());
  StatusOr<RawFilesReader> reader = Open(1);
  ASSERT_TRUE(reader.ok());
  std::vector<float> read_rows(rows.size());
  ASSERT_TRUE(reader.value().ReadValues(Span<float>(read_rows)).ok());
  EXPECT_EQ(read_rows, rows);
}

TEST_F(RawFilesTest, EmptyTable) {
  ASSERT_TRUE(Write({}, {}, 4).ok());
  StatusOr<RawFilesReader> reader = Open(4);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader.value().num_rows(), 0);
}

TEST_F(RawFilesTest, NamesWithSlashesGetFolders) {
  ASSERT_TRUE(Write({1}, {2.0f}, 1, "scope/layer/table").ok());
  EXPECT_TRUE(fs::exists(directory_ / "scope/layer/table_keys.file"));
  EXPECT_TRUE(Open(1, "scope/layer/table").ok());
}

TEST_F(RawFilesTest, LeavesNoTemporaryFiles) {
  ASSERT_TRUE(Write({1}, {2.0f}, 1).ok());
  ASSERT_TRUE(Write({3}, {4.0f}, 1).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 2);
}

TEST_F(RawFilesTest, MissingFileIsNotFoundAndNamed) {
  const Status status = Open(1).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("table_keys.file"), std::string::npos) << status.message();
}

TEST_F(RawFilesTest, SizesThatDoNotFitAreDataLoss) {
  ASSERT_TRUE(Write({1, 2}, {1, 2, 3, 4}, 2).ok());
  EXPECT_EQ(Open(3).status().code(), StatusCode::kDataLoss) << "another dim";
  EXPECT_EQ(Open(1).status().code(), StatusCode::kDataLoss) << "a divisor of the dim";
  const std::string keys = Bytes(directory_ / "table_keys.file");
  Overwrite(directory_ / "table_keys.file", keys.substr(0, 15));
  EXPECT_EQ(Open(2).status().code(), StatusCode::kDataLoss) << "half a key";
  Overwrite(directory_ / "table_keys.file", keys.substr(0, 8));
  EXPECT_EQ(Open(2).status().code(), StatusCode::kDataLoss) << "a key too few";
}

TEST_F(RawFilesTest, KeyThatStandsTwiceIsDataLoss) {
  ASSERT_TRUE(Write({7, 8, 7}, {1, 2, 3}, 1).ok());
  StatusOr<RawFilesReader> reader = Open(1);
  ASSERT_TRUE(reader.ok());
  std::vector<int64_t> keys;
  const Status status = reader.value().ReadKeys(&keys);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find('7'), std::string::npos) << status.message();
}

TEST_F(RawFilesTest, DirectoryThatCannotBeMadeIsAnError) {
  std::ofstream(directory_.string()) << "a file, not a directory";
  const Status status = Write({1}, {2.0f}, 1);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(directory_.string()), std::string::npos) << status.message();
}

}  // namespace
}  // namespace sok
