#include "cc/checkpoint/raw_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/base/thread_pool.h"
#include "cc/checkpoint/testing/saved_ranks.h"

namespace sok {
namespace {

namespace fs = std::filesystem;

// The folder of the running test, which is not there yet.
fs::path FolderOfTest() {
  const auto folder =
      fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
  fs::remove_all(folder);
  return folder;
}

class RawFilesTest : public ::testing::Test {
 protected:
  Status Write(const std::vector<int64_t>& keys, const std::vector<float>& rows, int64_t dim,
               const std::string& name = "table", const std::string& key_dtype = "int64") {
    const RawFilesWriter writer(directory_.string(), name, static_cast<int64_t>(keys.size()), dim, key_dtype);
    SOK_RETURN_IF_ERROR(writer.Begin());
    SOK_RETURN_IF_ERROR(writer.Write(0, keys, RowsOf(rows, dim)));
    SOK_RETURN_IF_ERROR(writer.Sync());
    return writer.Publish();
  }
  StatusOr<RawFilesReader> Open(int64_t dim, const std::string& name = "table") {
    return RawFilesReader::Open(directory_.string(), name, dim);
  }
  static std::vector<const float*> RowsOf(const std::vector<float>& values, int64_t dim) {
    std::vector<const float*> rows;
    for (size_t at = 0; at < values.size(); at += static_cast<size_t>(dim)) rows.push_back(&values[at]);
    return rows;
  }
  // The keys of "table" as a table of `key_dtype` reads them. Rows have one float.
  StatusOr<std::vector<int64_t>> ReadKeys(const std::string& key_dtype) {
    SOK_ASSIGN_OR_RETURN(RawFilesReader reader,
                         RawFilesReader::Open(directory_.string(), "table", 1, key_dtype));
    std::vector<int64_t> keys;
    SOK_RETURN_IF_ERROR(reader.ReadKeys(executor_, &keys));
    return keys;
  }
  static std::string Bytes(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  static void Overwrite(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  // Reads the rows [first, first + count) of `dim` floats into `values`.
  static Status ReadRows(const RawFilesReader& reader, int64_t first, int64_t count, int64_t dim,
                         float* values) {
    std::vector<float*> rows;
    for (int64_t i = 0; i < count; ++i) rows.push_back(values + i * dim);
    std::vector<float> scratch;
    return reader.ReadRows(first, rows, &scratch);
  }

  InlineExecutor executor_;
  const fs::path directory_ = FolderOfTest();
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
  ASSERT_TRUE(reader.value().ReadKeys(executor_, &read_keys).ok());
  EXPECT_EQ(read_keys, keys);
  std::vector<float> read_rows(rows.size());
  ASSERT_TRUE(ReadRows(reader.value(), 2, 3, 3, &read_rows[6]).ok());
  ASSERT_TRUE(ReadRows(reader.value(), 0, 2, 3, &read_rows[0]).ok());
  EXPECT_EQ(read_rows, rows);
}

TEST_F(RawFilesTest, AreLittleEndianArraysWithoutAHeader) {
  ASSERT_TRUE(Write({258}, {1.0f}, 1).ok());
  EXPECT_EQ(Bytes(directory_ / "table_keys.file"), std::string("\x02\x01\0\0\0\0\0\0", 8));
  EXPECT_EQ(Bytes(directory_ / "table_values.file"), std::string("\0\0\x80\x3f", 4));
}

constexpr int64_t kTwo31 = int64_t{1} << 31;
constexpr int64_t kTwo32 = int64_t{1} << 32;

TEST_F(RawFilesTest, KeysTakeTheBytesOfTheirDtype) {
  ASSERT_TRUE(Write({258, kTwo32 - 1}, {1, 2}, 1, "table", "uint32").ok());
  EXPECT_EQ(Bytes(directory_ / "table_keys.file"), std::string("\x02\x01\0\0\xff\xff\xff\xff", 8));
  ASSERT_TRUE(Write({258, -2}, {1, 2}, 1, "table", "int32").ok());
  EXPECT_EQ(Bytes(directory_ / "table_keys.file"), std::string("\x02\x01\0\0\xfe\xff\xff\xff", 8));
}

TEST_F(RawFilesTest, FourByteKeysAreReadBack) {
  const std::vector<int64_t> of_uint32 = {0, 7, kTwo31, kTwo32 - 1};
  ASSERT_TRUE(Write(of_uint32, {1, 2, 3, 4}, 1, "table", "uint32").ok());
  EXPECT_EQ(ReadKeys("uint32").value(), of_uint32);
  const std::vector<int64_t> of_int32 = {0, -1, kTwo31 - 1, -kTwo31, 5};
  ASSERT_TRUE(Write(of_int32, {1, 2, 3, 4, 5}, 1, "table", "int32").ok());
  EXPECT_EQ(ReadKeys("int32").value(), of_int32);
}

TEST_F(RawFilesTest, SeveralWritersOfFourByteKeysMakeOneTable) {
  const std::vector<int64_t> keys = {-10, 20, -30};
  const float one = 1;
  const float* const row = &one;
  const RawFilesWriter writer(directory_.string(), "table", 3, 1, "int32");
  ASSERT_TRUE(writer.Begin().ok());
  for (const int64_t first : {2, 0, 1}) {
    const auto keys_of_one = Span<const int64_t>(keys).subspan(first, 1);
    ASSERT_TRUE(writer.Write(first, keys_of_one, Span<const float* const>(&row, 1)).ok());
  }
  ASSERT_TRUE(writer.Publish().ok());
  EXPECT_EQ(ReadKeys("int32").value(), keys);
}

TEST_F(RawFilesTest, KeysOfAnotherWidthAreReadIfTheyFit) {
  ASSERT_TRUE(Write({0, -1, kTwo31 - 1, -kTwo31}, {1, 2, 3, 4}, 1).ok());
  EXPECT_EQ(ReadKeys("int32").value(), (std::vector<int64_t>{0, -1, kTwo31 - 1, -kTwo31}));
  EXPECT_EQ(ReadKeys("uint32").status().code(), StatusCode::kDataLoss);
  ASSERT_TRUE(Write({0, kTwo31, kTwo32 - 1}, {1, 2, 3}, 1).ok());
  EXPECT_EQ(ReadKeys("uint32").value(), (std::vector<int64_t>{0, kTwo31, kTwo32 - 1}));
  const Status too_large = ReadKeys("int32").status();
  EXPECT_EQ(too_large.code(), StatusCode::kDataLoss);
  EXPECT_NE(too_large.message().find("2147483648"), std::string::npos) << too_large.message();
  ASSERT_TRUE(Write({kTwo32}, {1}, 1).ok());
  EXPECT_EQ(ReadKeys("uint32").status().code(), StatusCode::kDataLoss);
}

TEST_F(RawFilesTest, UnambiguousFourByteKeysAreReadAsInt64) {
  ASSERT_TRUE(Write({3, 5, kTwo31 - 1}, {1, 2, 3}, 1, "table", "uint32").ok());
  EXPECT_EQ(ReadKeys("int64").value(), (std::vector<int64_t>{3, 5, kTwo31 - 1}));
  EXPECT_EQ(ReadKeys("int32").value(), (std::vector<int64_t>{3, 5, kTwo31 - 1}));
  ASSERT_TRUE(Write({3, kTwo31}, {1, 2}, 1, "table", "uint32").ok());
  EXPECT_EQ(ReadKeys("int64").status().code(), StatusCode::kDataLoss) << "it may be -2^31";
  for (const int64_t rows : {2, 3, 4, 5}) {
    std::vector<int64_t> keys = {3, 0, 4, 0, 5};
    keys.resize(rows);
    ASSERT_TRUE(Write(keys, {1, 2, 3, 4, 5}, 1, "table", "uint32").ok());
    EXPECT_EQ(ReadKeys("int64").status().code(), StatusCode::kDataLoss)
        << "they may be eight-byte keys that were cut";
  }
  ASSERT_TRUE(Write({3}, {1}, 1, "table", "uint32").ok());
  EXPECT_EQ(ReadKeys("int64").value(), (std::vector<int64_t>{3}));
}

TEST_F(RawFilesTest, FilesWithoutRowsFitAnyKeyDtype) {
  for (const std::string written : {"int64", "int32", "uint32"}) {
    ASSERT_TRUE(Write({}, {}, 1, "table", written).ok());
    for (const std::string read : {"int64", "int32", "uint32"}) EXPECT_TRUE(ReadKeys(read).value().empty());
  }
  Overwrite(directory_ / "table_keys.file", "1234");
  EXPECT_EQ(ReadKeys("int32").status().code(), StatusCode::kDataLoss);
}

TEST_F(RawFilesTest, LinksAreReplacedAndTheirTargetsStay) {
  const fs::path victim = directory_ / "victim";
  fs::create_directories(directory_);
  Overwrite(victim, "bytes");
  for (const char* name : {"table_keys.file", "table_values.file"}) {
    fs::create_symlink(victim, directory_ / name);
    fs::create_symlink(victim, directory_ / (std::string(name) + ".unfinished"));
  }
  ASSERT_TRUE(Write({258}, {1.0f}, 1).ok());
  EXPECT_EQ(Bytes(victim), "bytes");
  EXPECT_EQ(Bytes(directory_ / "table_values.file"), std::string("\0\0\x80\x3f", 4));
  EXPECT_FALSE(fs::is_symlink(directory_ / "table_keys.file"));

  // A link that is made after Begin is refused.
  const RawFilesWriter writer(directory_.string(), "table", 1, 1, "int64");
  ASSERT_TRUE(writer.Begin().ok());
  fs::remove(directory_ / "table_keys.file.unfinished");
  fs::create_symlink(victim, directory_ / "table_keys.file.unfinished");
  const std::vector<int64_t> keys = {5};
  const float one = 2.0f;
  const float* const row = &one;
  EXPECT_FALSE(writer.Write(0, keys, Span<const float* const>(&row, 1)).ok());
  EXPECT_EQ(Bytes(victim), "bytes");
}

TEST_F(RawFilesTest, SeveralWritersMakeOneTable) {
  const std::vector<int64_t> keys = {10, 20, 30, 40, 50};
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const std::vector<const float*> pointers = RowsOf(rows, 2);
  const RawFilesWriter writer(directory_.string(), "table", 5, 2);
  ASSERT_TRUE(writer.Begin().ok());
  const auto write = [&](int64_t first, int64_t count) {
    SOK_RETURN_IF_ERROR(writer.Write(first, Span<const int64_t>(keys).subspan(first, count),
                                     Span<const float* const>(pointers).subspan(first, count)));
    return writer.Sync();
  };
  ASSERT_TRUE(write(3, 2).ok());
  ASSERT_TRUE(write(3, 0).ok());
  EXPECT_EQ(Open(2).status().code(), StatusCode::kNotFound) << "before they are published";
  ASSERT_TRUE(write(0, 3).ok());
  ASSERT_TRUE(writer.Publish().ok());
  StatusOr<RawFilesReader> reader = Open(2);
  ASSERT_TRUE(reader.ok());
  std::vector<int64_t> read_keys;
  ASSERT_TRUE(reader.value().ReadKeys(executor_, &read_keys).ok());
  EXPECT_EQ(read_keys, keys);
  std::vector<float> read_rows(rows.size());
  ASSERT_TRUE(ReadRows(reader.value(), 0, 5, 2, read_rows.data()).ok());
  EXPECT_EQ(read_rows, rows);
}

TEST_F(RawFilesTest, AWriteWithoutBeginIsNotFound) {
  const RawFilesWriter writer(directory_.string(), "table", 1, 1);
  EXPECT_EQ(writer.Write(0, {}, {}).code(), StatusCode::kNotFound);
  EXPECT_EQ(writer.Sync().code(), StatusCode::kNotFound);
}

TEST_F(RawFilesTest, AnAbandonedWriterLeavesEarlierFiles) {
  ASSERT_TRUE(Write({1}, {2.0f}, 1).ok());
  const RawFilesWriter writer(directory_.string(), "table", 9, 1);
  ASSERT_TRUE(writer.Begin().ok());
  writer.Abandon();
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 2);
  EXPECT_EQ(Open(1).value().num_rows(), 1);
}

TEST_F(RawFilesTest, APublicationThatFailsLeavesEarlierFiles) {
  for (const bool keys_fail : {false, true}) {
    ASSERT_TRUE(Write({1}, {2.0f}, 1).ok());
    const RawFilesWriter writer(directory_.string(), "table", 1, 1);
    ASSERT_TRUE(writer.Begin().ok());
    const fs::path failing =
        keys_fail ? RawKeysPath(directory_.string(), "table") : RawValuesPath(directory_.string(), "table");
    const fs::path aside = directory_ / "aside";
    fs::rename(failing, aside);
    fs::create_directories(failing / "in the way");
    EXPECT_FALSE(writer.Publish().ok());
    writer.Abandon();
    fs::remove_all(failing);
    fs::rename(aside, failing);
    EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 2);
    auto reader = Open(1);
    std::vector<int64_t> keys;
    ASSERT_TRUE(reader.value().ReadKeys(executor_, &keys).ok());
    EXPECT_EQ(keys, std::vector<int64_t>{1});
  }
}

TEST_F(RawFilesTest, MoreRowsThanTheBufferHolds) {
  std::vector<int64_t> keys(300001);
  std::iota(keys.begin(), keys.end(), -7);
  std::vector<float> rows(keys.begin(), keys.end());
  ASSERT_TRUE(Write(keys, rows, 1).ok());
  StatusOr<RawFilesReader> reader = Open(1);
  ASSERT_TRUE(reader.ok());
  std::vector<float> read_rows(rows.size());
  ASSERT_TRUE(ReadRows(reader.value(), 0, 300001, 1, read_rows.data()).ok());
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
  EXPECT_EQ(ReadKeys("int64").status().code(), StatusCode::kDataLoss) << "half the dim, as of 4-byte keys";
  const std::string keys = Bytes(directory_ / "table_keys.file");
  Overwrite(directory_ / "table_keys.file", keys.substr(0, 15));
  EXPECT_EQ(Open(2).status().code(), StatusCode::kDataLoss) << "half a key";
  Overwrite(directory_ / "table_keys.file", keys.substr(0, 8));
  std::vector<int64_t> read_keys;
  EXPECT_EQ(Open(2).value().ReadKeys(executor_, &read_keys).code(), StatusCode::kDataLoss) << "a key too few";
  Overwrite(directory_ / "table_keys.file", keys.substr(0, 12));
  EXPECT_EQ(Open(2).status().code(), StatusCode::kDataLoss) << "a key and a half";
}

TEST_F(RawFilesTest, ARepeatedKeyIsDataLoss) {
  ASSERT_TRUE(Write({7, 8, 7}, {1, 2, 3}, 1).ok());
  StatusOr<RawFilesReader> reader = Open(1);
  ASSERT_TRUE(reader.ok());
  std::vector<int64_t> keys;
  const Status status = reader.value().ReadKeys(executor_, &keys);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find('7'), std::string::npos) << status.message();
}

TEST_F(RawFilesTest, DirectoryThatCannotBeMadeIsAnError) {
  std::ofstream(directory_.string()) << "a file, not a directory";
  const Status status = Write({1}, {2.0f}, 1);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(directory_.string()), std::string::npos) << status.message();
}

class RawRowsTest : public ::testing::Test {
 protected:
  RawRowsTest() {
    options_.name = "items";
    options_.dim = 3;
    options_.initializer.seed = 5;
  }

  // Tables whose rows lag behind: exact Adam postpones the steps of rows without gradients.
  Tables MakeTrained(int ranks) {
    Tables tables = MakeTables(options_, ranks);
    std::vector<int64_t> keys = HostileIds();
    for (const int64_t key : DistinctIds(200, 9)) keys.push_back(key);
    std::mt19937_64 random(4);
    for (int step = 0; step < 4; ++step) {
      EXPECT_TRUE(
          TrainOnSome(tables, "adam", {0.01f, 0.9f, 0.999f, 1e-8f}, keys, step == 0 ? 1.0 : 0.3, &random)
              .ok());
    }
    return tables;
  }

  static std::vector<int64_t> CountsOf(const Tables& tables) {
    std::vector<int64_t> counts;
    for (const auto& table : tables) counts.push_back(table->Describe().rows);
    return counts;
  }

  Status WriteAll(const Tables& tables, const std::vector<int64_t>& counts) {
    InlineExecutor executor;
    const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const RawFilesWriter writer(directory_, options_.name, rows, options_.dim);
    SOK_RETURN_IF_ERROR(writer.Begin());
    for (const auto& table : tables) {
      SOK_RETURN_IF_ERROR(WriteRawRows(ContextOn(executor), table.get(), counts, writer));
    }
    return writer.Publish();
  }

  StatusOr<Tables> ReadAll(int ranks) {
    InlineExecutor executor;
    return ReadAll(ranks, executor);
  }
  StatusOr<Tables> ReadAll(int ranks, Executor& executor) {
    Tables tables;
    options_.ranks = ranks;
    for (options_.rank = 0; options_.rank < ranks; ++options_.rank) {
      SOK_ASSIGN_OR_RETURN(auto reader, RawFilesReader::Open(directory_, options_.name, options_.dim));
      std::vector<int64_t> keys;
      SOK_RETURN_IF_ERROR(reader.ReadKeys(executor, &keys));
      SOK_ASSIGN_OR_RETURN(auto table,
                           LoadRawRows(ContextOn(executor), EngineOfTests().engine, options_, keys, reader));
      tables.push_back(std::move(table));
    }
    return tables;
  }

  // The weights of all rows, by key, after the steps that the optimizer has postponed.
  std::map<int64_t, std::vector<float>> WeightsOf(const Tables& tables) {
    std::map<int64_t, std::vector<float>> weights;
    for (const auto& table : tables) {
      BringUpToDate(table.get());
      for (const auto& [key, row] : StateOf({table}).rows) {
        const std::vector<float>& floats = std::get<0>(row);
        weights[key].assign(floats.begin(), floats.begin() + options_.dim);
      }
    }
    return weights;
  }

  const std::string directory_ = FolderOfTest().string();
  TableOptions options_;
};

TEST_F(RawRowsTest, ComeBackOnAnyNumberOfRanks) {
  for (const int from : {1, 2, 3}) {
    const Tables tables = MakeTrained(from);
    ASSERT_TRUE(WriteAll(tables, CountsOf(tables)).ok());
    const auto weights = WeightsOf(tables);
    ASSERT_GT(weights.size(), 200U);
    for (const int to : {1, 3, 4}) {
      const auto read = ReadAll(to);
      ASSERT_TRUE(read.ok()) << read.status().message();
      EXPECT_EQ(WeightsOf(read.value()), weights) << from << " ranks to " << to;
    }
  }
}

// Two pieces, one of which has two blocks.
TEST_F(RawRowsTest, ThreadsReadTheBlocksOfPieces) {
  constexpr int64_t kRows = 40000;
  options_.dim = 10;
  const Tables tables = MakeTables(options_, 1);
  std::mt19937_64 random(2);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, DistinctIds(kRows, 3), &random).ok());
  ASSERT_TRUE(WriteAll(tables, {kRows}).ok());
  const auto weights = WeightsOf(tables);
  ThreadPool pool(3, 0);
  for (const int ranks : {1, 2}) {
    const auto read = ReadAll(ranks, pool);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_TRUE(WeightsOf(read.value()) == weights) << ranks << " ranks";
  }
}

TEST_F(RawRowsTest, RowsInsertedAfterTheCountAreLeftOut) {
  const Tables tables = MakeTrained(1);
  const std::vector<int64_t> counts = CountsOf(tables);
  const auto weights = WeightsOf(tables);
  std::mt19937_64 random(1);
  ASSERT_TRUE(TrainOn(tables, "adam", {0.0f, 0.9f, 0.999f, 1e-8f}, {123456789, 987654321}, &random).ok());
  ASSERT_EQ(tables[0]->Describe().rows, counts[0] + 2);
  ASSERT_TRUE(WriteAll(tables, counts).ok());
  const auto read = ReadAll(1);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value()[0]->Describe().rows, counts[0]);
}

TEST_F(RawRowsTest, FewerRowsThanCountedIsAnErrorWithBothNumbers) {
  const Tables tables = MakeTrained(1);
  std::vector<int64_t> counts = CountsOf(tables);
  ASSERT_TRUE(Erase(tables[0].get(), {KeysOf(tables[0].get())[0]}).ok());
  const Status status = WriteAll(tables, counts);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  for (const std::string& word :
       {std::string("'items'"), std::to_string(counts[0]), std::to_string(counts[0] - 1)}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
}

TEST_F(RawRowsTest, TablesWithoutHashingNeedExactlyTheirKeys) {
  options_.use_hashtable = false;
  const auto with_keys = [&](int64_t keys, int ranks) {
    options_.placement = Placement::ByKey(keys);
    options_.capacity = (keys + ranks - 1) / ranks;
  };
  with_keys(11, 2);
  const Tables tables = MakeTables(options_, 2);
  ASSERT_TRUE(WriteAll(tables, CountsOf(tables)).ok());
  with_keys(11, 3);
  const auto read = ReadAll(3);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(WeightsOf(read.value()), WeightsOf(tables));
  with_keys(12, 3);
  const Status fewer = ReadAll(3).status();
  EXPECT_EQ(fewer.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(fewer.message().find("'items' has 4 rows on rank 2, but the files have only 3"),
            std::string::npos)
      << fewer.message();
  with_keys(10, 3);
  const Status more = ReadAll(3).status();
  EXPECT_EQ(more.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(more.message().find("no row for key 10"), std::string::npos) << more.message();
}

TEST_F(RawRowsTest, MoreRowsThanTheCapacityIsAnError) {
  const Tables tables = MakeTrained(1);
  ASSERT_TRUE(WriteAll(tables, CountsOf(tables)).ok());
  options_.capacity = 10;
  const Status status = ReadAll(1).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_NE(status.message().find("'items'"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace sok
