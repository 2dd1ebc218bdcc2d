// Records come back as they were written, from a file that stays small, or as an error.
#include "cc/disk/row_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/disk/testing/files_for_tests.h"

namespace sok {
namespace {

constexpr int64_t kBytes = 20;

std::unique_ptr<RowFile> MakeFile(int64_t segment_bytes = RowFile::kSegmentBytes, bool maps = true,
                                  const std::string& folder = testing::TempDir()) {
  auto file = RowFile::Create(folder, kBytes, segment_bytes, maps);
  EXPECT_TRUE(file.ok()) << file.status().message();
  return std::move(file.value());
}

std::string RecordOf(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string record(kBytes, '\0');
  for (char& byte : record) byte = static_cast<char>(random());
  return record;
}

// A file and what it should hold.
class Model {
 public:
  Model(Executor& executor, std::unique_ptr<RowFile> file) : executor_(executor), file_(std::move(file)) {}

  RowFile& file() { return *file_; }

  void Append(const std::vector<int64_t>& rows) {
    std::vector<std::string> records;
    for (size_t i = 0; i < rows.size(); ++i) records.push_back(RecordOf(++seed_));
    std::vector<int64_t> places(rows.size());
    const Status status =
        file_->Append(executor_, rows, [&](int64_t i) { return records[i].data(); }, Span<int64_t>(places));
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < rows.size(); ++i) rows_[rows[i]] = {places[i], records[i]};
  }
  void Free(int64_t row) {
    file_->Free(rows_.at(row).place);
    rows_.erase(row);
  }
  bool has(int64_t row) const { return rows_.count(row) > 0; }
  Status Compact() {
    return file_->Compact(
        executor_, [&](int64_t row) { return has(row) ? rows_.at(row).place : -1; },
        [&](int64_t row, int64_t place) { rows_.at(row).place = place; });
  }
  // Reads all records, and compares them.
  Status Read(bool compare = true) {
    std::vector<int64_t> rows;
    std::vector<int64_t> places;
    for (const auto& [row, saved] : rows_) {
      rows.push_back(row);
      places.push_back(saved.place);
    }
    std::vector<std::string> records(rows.size(), std::string(kBytes, '\0'));
    const Status status = file_->Read(executor_, rows, places, [&](int64_t i) { return records[i].data(); });
    for (size_t i = 0; compare && i < rows.size(); ++i) EXPECT_EQ(records[i], rows_[rows[i]].record);
    return status;
  }
  // The places of all records in use.
  std::vector<int64_t> Places() const {
    std::vector<int64_t> places;
    for (const auto& [row, saved] : rows_) places.push_back(saved.place);
    return places;
  }
  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  int64_t place(int64_t row) const { return rows_.at(row).place; }

 private:
  struct Saved {
    int64_t place;
    std::string record;
  };
  Executor& executor_;
  std::unique_ptr<RowFile> file_;
  std::map<int64_t, Saved> rows_;
  uint64_t seed_ = 0;
};

TEST(RowFileTest, RecordsComeBackAndTheFileStaysSmall) {
  for (const int64_t segment : {1, 40, 200, 201, 1000}) {
    ThreadPool executor(3);
    Model model(executor, MakeFile(segment, /*maps=*/segment != 201));
    std::mt19937 random(segment);
    const int64_t of_segment = std::max<int64_t>(segment / 36, 1);
    for (int step = 0; step < 300; ++step) {
      std::vector<int64_t> rows;
      for (int64_t row = 0; row < 60; ++row) {
        if (random() % 4 != 0) continue;
        if (model.has(row)) model.Free(row);
        if (random() % 8 != 0) rows.push_back(row);
      }
      model.Append(rows);
      ASSERT_TRUE(model.Compact().ok());
      ASSERT_TRUE(model.Read().ok());
      ASSERT_EQ(model.file().records(), model.size());
      // Half as many records again, a few segments, and those that are kept.
      const int64_t in_use = 3 * model.size() / 2 / of_segment + 5;
      ASSERT_LE(model.file().bytes(), 36 * of_segment * (in_use + 1 + in_use / 8)) << segment;
    }
  }
}

TEST(RowFileTest, FreedSegmentsGoBackToTheDiskButFew) {
  InlineExecutor executor;
  constexpr int64_t kSegmentBytes = 1 << 18;
  constexpr int64_t kPages = 100'000;  // that are partly of other segments, and what describes the file
  Model model(executor, MakeFile(kSegmentBytes));
  const auto on_disk = [&] {
    struct stat facts;
    EXPECT_EQ(fstat(model.file().descriptor(), &facts), 0);
    return facts.st_blocks * 512;
  };
  const int64_t of_segment = kSegmentBytes / 36;
  std::vector<int64_t> rows(20 * of_segment);
  std::iota(rows.begin(), rows.end(), 0);
  model.Append(rows);
  EXPECT_NEAR(on_disk(), 20 * kSegmentBytes, kPages);
  // 17 segments are used again, but for 1 + 3 / 8 of them nothing stays on the disk.
  for (int64_t row = 0; row < 17 * of_segment; ++row) model.Free(row);
  EXPECT_NEAR(on_disk(), 4 * kSegmentBytes, kPages);
  EXPECT_NEAR(model.file().bytes(), 4 * kSegmentBytes, kPages);
  // The last freed first: nothing more is on the disk.
  rows.resize(of_segment);
  model.Append(rows);
  EXPECT_EQ(model.place(0) / of_segment, 16);
  EXPECT_NEAR(on_disk(), 4 * kSegmentBytes, kPages);
  for (int64_t row = 0; row < of_segment; ++row) rows[row] = of_segment + row;
  model.Append(rows);
  EXPECT_NEAR(on_disk(), 5 * kSegmentBytes, kPages);
  EXPECT_TRUE(model.Read().ok());
}

TEST(RowFileTest, DamageIsAnErrorWhereverItIs) {
  InlineExecutor executor;
  for (int64_t at = 0; at < 36; ++at) {
    Model model(executor, MakeFile(36));
    model.Append({7, 8, 9, 10, 11, 12, 13});
    char byte = 0;
    const int64_t offset = model.place(8) * 36 + at;
    ASSERT_EQ(pread(model.file().descriptor(), &byte, 1, offset), 1);
    byte ^= 0x10;
    ASSERT_EQ(pwrite(model.file().descriptor(), &byte, 1, offset), 1);
    const Status status = model.Read(/*compare=*/false);
    if (at >= 12 && at < 16) {  // padding
      EXPECT_TRUE(status.ok()) << at;
      continue;
    }
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << at;
    EXPECT_NE(status.message().find("row 8 "), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(testing::TempDir()), std::string::npos) << status.message();
    // Compaction ends, and does not hide the damage.
    for (const int64_t row : {7, 9, 10, 11, 12, 13}) model.Free(row);
    model.Append({20, 21, 22, 23, 24, 25, 26, 27});
    for (const int64_t row : {20, 21, 22, 23, 24, 25}) model.Free(row);
    const Status compacted = model.Compact();
    EXPECT_TRUE(compacted.ok() || compacted.code() == StatusCode::kDataLoss) << compacted.message();
    EXPECT_EQ(model.Read(/*compare=*/false).code(), StatusCode::kDataLoss);
  }
}

TEST(RowFileTest, AFileThatEndsEarlyIsAnErrorAndOthersCanBeRead) {
  ThreadPool executor(2);
  std::vector<int64_t> rows(10'000);
  std::iota(rows.begin(), rows.end(), 0);
  for (const bool maps : {true, false}) {
    Model model(executor, MakeFile(RowFile::kSegmentBytes, maps));
    Model other(executor, MakeFile(RowFile::kSegmentBytes, maps));
    model.Append(rows);
    other.Append(rows);
    for (const int64_t bytes : {200'000, 4096, 50}) {
      ASSERT_EQ(ftruncate(model.file().descriptor(), bytes), 0);
      const Status status = model.Read(/*compare=*/false);
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
      EXPECT_NE(status.message().find(testing::TempDir()), std::string::npos) << status.message();
      EXPECT_TRUE(other.Read().ok());
    }
  }
}

TEST(RowFileTest, AfterReadsFromTheDiskRecordsAreAskedForAhead) {
  ThreadPool executor(2);
  // More often on a disk than the folder of tests.
  Model model(executor, MakeFile(RowFile::kSegmentBytes, /*maps=*/true, "/var/tmp"));
  std::vector<int64_t> rows(50'000);
  std::iota(rows.begin(), rows.end(), 0);
  model.Append(rows);
  RowFile& file = model.file();
  const int64_t pages = (36 * model.size()) >> 12;
  ASSERT_EQ(fdatasync(file.descriptor()), 0);
  posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  if (PagesInMemory(file.descriptor(), pages) > pages / 4) GTEST_SKIP() << "the file system keeps all pages";
  // Nothing is known of the disk yet.
  file.AskAhead(executor, model.Places());
  EXPECT_FALSE(file.asks_ahead());
  EXPECT_LE(PagesInMemory(file.descriptor(), pages), pages / 4);
  std::string record(kBytes, '\0');
  const int64_t place = model.place(0);
  const auto read_one = [&] {
    return file.Read(executor, Span<const int64_t>(rows).subspan(0, 1), Span<const int64_t>(&place, 1),
                     [&](int64_t) { return record.data(); });
  };
  EXPECT_TRUE(read_one().ok());
  EXPECT_TRUE(file.asks_ahead());
  file.AskAhead(executor, model.Places());
  for (int tries = 0; PagesInMemory(file.descriptor(), pages) < pages && tries < 1000; ++tries)
    usleep(10'000);
  EXPECT_EQ(PagesInMemory(file.descriptor(), pages), pages);
  EXPECT_TRUE(model.Read().ok());
  // Not for good: it costs time.
  for (int time = 0; time < 20; ++time) EXPECT_TRUE(read_one().ok());
  EXPECT_FALSE(file.asks_ahead());
}

TEST(RowFileTest, AFullDiskIsAnErrorAndLosesNothing) {
  InlineExecutor executor;
  Model model(executor, MakeFile(360));
  model.Append({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const std::vector<int64_t> rows = {20, 21, 22, 23, 24, 25, 26, 27, 28, 29};
  const std::string record(kBytes, 'x');
  std::vector<int64_t> places(rows.size());
  const Status status = [&] {
    const FileLimit limit(720);
    return model.file().Append(executor, rows, [&](int64_t) { return record.data(); }, Span<int64_t>(places));
  }();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_NE(status.message().find(testing::TempDir()), std::string::npos) << status.message();
  EXPECT_EQ(model.file().records(), model.size());
  EXPECT_TRUE(model.Read().ok());
  model.Append(rows);
  EXPECT_TRUE(model.Read().ok());
}

TEST(RowFileTest, FoldersAreMadeAndChecked) {
  const std::string folder = testing::TempDir() + "/rows of a table";
  rmdir(folder.c_str());
  {
    const auto file = RowFile::Create(folder, kBytes);
    ASSERT_TRUE(file.ok()) << file.status().message();
    // Nothing is left of it, whatever ends the process.
    EXPECT_EQ(rmdir(folder.c_str()), 0);
  }
  EXPECT_EQ(RowFile::Create(folder + "/a/b", kBytes).status().code(), StatusCode::kNotFound);
  const std::string plain = testing::TempDir() + "/plain";
  std::fclose(std::fopen(plain.c_str(), "w"));
  EXPECT_FALSE(RowFile::Create(plain, kBytes).ok());
  const Status status = RowFile::Create(std::string("a\0b", 3), kBytes).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sok
