#include "cc/checkpoint/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "cc/checkpoint/direct_reads.h"
#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/saved_ranks.h"

namespace sok {
namespace {

namespace fs = std::filesystem;

class PosixFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        (fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name())
            .string();
    fs::remove_all(folder_);
  }

  Files& files_ = PosixFiles();
  std::string folder_;
};

TEST_F(PosixFilesTest, WhatIsWrittenIsRead) {
  ASSERT_TRUE(MakeFolders(files_, folder_ + "/a/b").ok());
  ASSERT_TRUE(WriteWholeFile(files_, folder_ + "/a/b/x", "some bytes").ok());
  ASSERT_TRUE(files_.SyncFolder(folder_ + "/a/b").ok());
  std::string bytes;
  ASSERT_TRUE(ReadWholeFile(files_, folder_ + "/a/b/x", 10, &bytes).ok());
  EXPECT_EQ(bytes, "some bytes");
  EXPECT_EQ(ReadWholeFile(files_, folder_ + "/a/b/x", 9, &bytes).code(), StatusCode::kDataLoss);
  ASSERT_TRUE(files_.Rename(folder_ + "/a", folder_ + "/c").ok());
  std::vector<std::string> names;
  ASSERT_TRUE(files_.List(folder_, &names).ok());
  EXPECT_EQ(names, std::vector<std::string>{"c"});
  fs::remove_all(folder_);
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(PosixFilesTest, ErrorsNameThePath) {
  const std::string path = folder_ + "/missing/x";
  const auto opened = files_.Open(path);
  EXPECT_EQ(opened.status().code(), StatusCode::kNotFound);
  EXPECT_NE(opened.status().message().find(path), std::string::npos);
  EXPECT_EQ(files_.Create(path).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files_.SyncFolder(path).code(), StatusCode::kNotFound);
  EXPECT_EQ(files_.Remove(path).code(), StatusCode::kNotFound);
}

TEST_F(PosixFilesTest, RefusesFoldersAndPipes) {
  ASSERT_TRUE(MakeFolders(files_, folder_).ok());
  EXPECT_EQ(files_.Open(folder_).status().code(), StatusCode::kDataLoss);
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(files_.Open(pipe).status().code(), StatusCode::kDataLoss) << "without waiting for a writer";
  EXPECT_EQ(files_.Create(pipe).status().code(), StatusCode::kFailedPrecondition)
      << "without waiting for a reader";
}

TEST_F(PosixFilesTest, RefusesAPathWithAZeroByte) {
  ASSERT_TRUE(MakeFolders(files_, folder_ + "/a").ok());
  ASSERT_TRUE(WriteWholeFile(files_, folder_ + "/a/x", "some bytes").ok());
  // Cut at the zero byte, the path would be the folder "a" or the file in it.
  const std::string zero = std::string("\0", 1);
  for (const std::string& path :
       {folder_ + "/a" + zero, folder_ + "/a/x" + zero, folder_ + "/a/" + zero + "b/c"}) {
    bool made = false;
    std::vector<std::string> names;
    const Status statuses[] = {
        files_.MakeFolder(path, &made),      MakeFolders(files_, path), files_.Create(path).status(),
        files_.Open(path).status(),          files_.SyncFolder(path),   files_.Rename(path, folder_ + "/c"),
        files_.Rename(folder_ + "/a", path), files_.Remove(path),       files_.List(path, &names)};
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
      EXPECT_NE(status.message().find(path), std::string::npos);
    }
  }
  std::string bytes;
  ASSERT_TRUE(ReadWholeFile(files_, folder_ + "/a/x", 10, &bytes).ok());
  EXPECT_EQ(bytes, "some bytes");
}

TEST_F(PosixFilesTest, RefusesAPathThatIsTooLong) {
  std::string path = folder_;
  for (int i = 0; i < 300000; ++i) path += "/a";
  const Status status = MakeFolders(files_, path);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(folder_.substr(0, 50)), std::string::npos);
  EXPECT_LT(status.message().size(), 400u);
}

TEST_F(PosixFilesTest, WhatIsInTheWayIsNamed) {
  ASSERT_TRUE(MakeFolders(files_, folder_ + "/full/x").ok());
  ASSERT_TRUE(WriteWholeFile(files_, folder_ + "/file", "").ok());
  const Status folders = MakeFolders(files_, folder_ + "/file/a/b");
  EXPECT_EQ(folders.code(), StatusCode::kFailedPrecondition) << folders.message();
  EXPECT_NE(folders.message().find("'" + folder_ + "/file'"), std::string::npos) << folders.message();
  EXPECT_EQ(files_.Create(folder_ + "/full").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(files_.Remove(folder_ + "/full").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(files_.Rename(folder_ + "/file", folder_ + "/full").code(), StatusCode::kFailedPrecondition);
}

TEST_F(PosixFilesTest, AFullDiskIsAnError) {
  ASSERT_TRUE(MakeFolders(files_, folder_).ok());
  const auto file = files_.Create(folder_ + "/x");
  ASSERT_TRUE(file.ok());
  // Limits files to 0 bytes for a moment, as a full disk would.
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit none = before;
  none.rlim_cur = 0;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const Status status = file.value()->WriteAt(0, "x", 1);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
}

// Anonymous memory of mmap.
class MappedMemory {
 public:
  explicit MappedMemory(int64_t bytes, int protection = PROT_READ | PROT_WRITE)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~MappedMemory() { munmap(data_, bytes_); }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  char* data() const { return static_cast<char*>(data_); }
  // For EXPECT_TRUE: pages are too long for messages.
  std::string Text(int64_t begin, int64_t bytes) const {
    return {data() + begin, static_cast<size_t>(bytes)};
  }

 private:
  const int64_t bytes_;
  void* const data_;
};

// Whether a file is mapped anywhere in this process.
bool IsMapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find(path) != std::string::npos) return true;
  }
  return false;
}

class MappedFileTest : public PosixFilesTest {
 protected:
  void SetUp() override {
    PosixFilesTest::SetUp();
    ASSERT_TRUE(MakeFolders(files_, folder_).ok());
    for (int64_t i = 0; i < 5 * page_; ++i) bytes_ += static_cast<char>('a' + (i + i / page_) % 23);
    ASSERT_TRUE(WriteWholeFile(files_, path(), bytes_).ok());
    file_ = std::move(files_.Open(path()).value());
  }
  std::string path() const { return folder_ + "/x"; }
  std::string FileBytes() {
    std::string bytes;
    EXPECT_TRUE(ReadWholeFile(files_, path(), 5 * page_, &bytes).ok());
    return bytes;
  }

  const int64_t page_ = sysconf(_SC_PAGESIZE);
  std::string bytes_;
  std::unique_ptr<FileReader> file_;
};

TEST_F(MappedFileTest, WholePagesAreMappedAndNothingElseIsWritten) {
  const MappedMemory memory(8 * page_);
  ASSERT_TRUE(file_->MapAt(page_, memory.data() + page_, 2 * page_ + 100).ok());
  EXPECT_TRUE(IsMapped(path()));
  EXPECT_TRUE(memory.Text(page_, 2 * page_ + 100) == bytes_.substr(page_, 2 * page_ + 100));
  const std::string zeros(page_, '\0');
  EXPECT_TRUE(memory.Text(0, page_) == zeros);
  EXPECT_TRUE(memory.Text(3 * page_ + 100, page_) == zeros) << "what follows in the file is not of the array";
}

TEST_F(MappedFileTest, WritingToTheMemoryDoesNotReachTheFile) {
  const MappedMemory memory(2 * page_);
  ASSERT_TRUE(file_->MapAt(0, memory.data(), 2 * page_).ok());
  memory.data()[page_ + 5] = '!';
  EXPECT_TRUE(FileBytes() == bytes_);
  EXPECT_TRUE(memory.Text(0, page_ + 5) == bytes_.substr(0, page_ + 5));
}

TEST_F(MappedFileTest, ARemovedFileStaysReadable) {
  const MappedMemory memory(5 * page_);
  ASSERT_TRUE(file_->MapAt(0, memory.data(), 5 * page_).ok());
  ASSERT_TRUE(files_.Remove(path()).ok());
  file_.reset();
  EXPECT_TRUE(memory.Text(0, 5 * page_) == bytes_);
}

TEST_F(MappedFileTest, WhatIsNotAtAPageIsRead) {
  const MappedMemory memory(5 * page_);
  ASSERT_TRUE(file_->MapAt(10, memory.data(), 2 * page_).ok());
  ASSERT_TRUE(file_->MapAt(0, memory.data() + 3 * page_ + 16, page_).ok());
  EXPECT_FALSE(IsMapped(path()));
  EXPECT_TRUE(memory.Text(0, 2 * page_) == bytes_.substr(10, 2 * page_));
  EXPECT_TRUE(memory.Text(3 * page_ + 16, page_) == bytes_.substr(0, page_));
}

TEST_F(MappedFileTest, TheEndOfTheFileIsAnError) {
  const MappedMemory memory(6 * page_);
  const Status status = file_->MapAt(page_, memory.data(), 5 * page_);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find(path()), std::string::npos) << status.message();
}

TEST_F(MappedFileTest, WithoutAnotherMapTheFileIsRead) {
  constexpr int64_t kMostMaps = 1 << 20;
  int64_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit > kMostMaps) GTEST_SKIP() << "the system allows too many maps";
  const MappedMemory memory(5 * page_);
  Status status;
  {
    // Pages with other permissions than the next ones are maps of their own.
    const MappedMemory many(2 * limit * page_, PROT_NONE);
    int64_t i = 0;
    while (i < limit && mprotect(many.data() + 2 * i * page_, page_, PROT_READ) == 0) ++i;
    ASSERT_LT(i, limit);
    status = file_->MapAt(page_, memory.data() + page_, 2 * page_);
  }
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_FALSE(IsMapped(path()));
  EXPECT_TRUE(memory.Text(page_, 2 * page_) == bytes_.substr(page_, 2 * page_));
}

class ReadAheadTest : public PosixFilesTest {
 protected:
  void SetUp() override {
    PosixFilesTest::SetUp();
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i * 2654435761 >> 8);
    ASSERT_TRUE(MakeFolders(files_, folder_).ok());
    ASSERT_TRUE(WriteWholeFile(files_, path(), bytes_).ok());
    descriptor_ = open(path().c_str(), O_RDONLY | O_CLOEXEC);
    // So that a file on a disk has to be read from it.
    posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
  }
  void TearDown() override { close(descriptor_); }

  std::string path() const { return folder_ + "/x"; }
  std::string Part(int64_t offset, int64_t bytes) const { return bytes_.substr(offset, bytes); }

  std::string bytes_ = std::string((5 << 20) + 1234, '\0');
  int descriptor_ = -1;
};

TEST_F(ReadAheadTest, BytesAreThoseOfTheFile) {
  const auto file = files_.Open(path());
  ASSERT_TRUE(file.ok());
  constexpr int64_t kBlock = 1 << 20;
  for (int64_t at = 0; at < file.value()->size(); at += kBlock) {
    const int64_t bytes = std::min(kBlock, file.value()->size() - at);
    std::string read(bytes, 'x');
    // The first block was not read ahead, and the last one has less than is asked for.
    for (const int64_t ahead : {at + kBlock, at + 2 * kBlock}) file.value()->ReadAhead(ahead, kBlock);
    ASSERT_TRUE(file.value()->ReadAt(at, read.data(), bytes).ok()) << at;
    EXPECT_EQ(read, Part(at, bytes)) << at;
  }
}

TEST_F(ReadAheadTest, DirectReadsBeginAndEndAnywhere) {
  const std::unique_ptr<DirectReads> reads = DirectReads::Create(descriptor_);
  if (reads == nullptr) GTEST_SKIP() << "no reads past the page cache";
  const int64_t size = static_cast<int64_t>(bytes_.size());
  const std::pair<int64_t, int64_t> ranges[] = {
      {0, 1}, {4096, 8192}, {4095, DirectReads::kMostBytes}, {1 << 20, 4097}, {size - 10, 10}, {12345, 0}};
  for (const auto& [offset, bytes] : ranges) ASSERT_TRUE(reads->Start(offset, bytes)) << offset;
  EXPECT_TRUE(reads->Start(4096, 8192)) << "is under way";
  std::string read(DirectReads::kMostBytes, 'x');
  EXPECT_FALSE(reads->Take(4096, 8191, read.data())) << "was not started";
  for (const auto& [offset, bytes] : ranges) {
    ASSERT_TRUE(reads->Take(offset, bytes, read.data())) << offset;
    EXPECT_EQ(read.substr(0, bytes), Part(offset, bytes)) << offset;
    EXPECT_FALSE(reads->Take(offset, bytes, read.data())) << "was taken";
  }
  EXPECT_FALSE(reads->Start(0, DirectReads::kMostBytes + 1));
  ASSERT_TRUE(reads->Start(size - 10, 11));
  EXPECT_FALSE(reads->Take(size - 10, 11, read.data())) << "ends behind the file";
}

TEST_F(ReadAheadTest, ReadsUnderWayAreLimited) {
  const std::unique_ptr<DirectReads> reads = DirectReads::Create(descriptor_);
  if (reads == nullptr) GTEST_SKIP() << "no reads past the page cache";
  for (int64_t i = 0; i < DirectReads::kMostReads; ++i) ASSERT_TRUE(reads->Start(i * 5000, 300)) << i;
  EXPECT_FALSE(reads->Start(1, 300));
  std::string read(300, 'x');
  ASSERT_TRUE(reads->Take(5000, 300, read.data()));
  EXPECT_EQ(read, Part(5000, 300));
  EXPECT_TRUE(reads->Start(1, 300));
  // The others are never taken.
}

TEST_F(PosixFilesTest, ATableIsSavedAndRestored) {
  TableOptions options;
  options.name = "a/b c";
  options.dim = 4;
  std::mt19937_64 random(1);
  const Tables tables = MakeTables(options, 2);
  SaveRequest request;
  request.prefix = folder_ + "/model.ckpt-7";
  request.id = SaveId(1);
  request.delta = true;
  ASSERT_TRUE(TrainOn(tables, "adam", {0.01f, 0.9f, 0.999f, 1e-8f}, {1, 2, 3, -4}, &random).ok());
  ASSERT_TRUE(Save(tables, request).ok());
  ASSERT_TRUE(TrainOn(tables, "adam", {0.01f, 0.9f, 0.999f, 1e-8f}, {2}, &random).ok());
  request.prefix = folder_ + "/other/model.ckpt-8";
  request.id = SaveId(2);
  const auto reference = Save(tables, request);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  EXPECT_TRUE(fs::exists(request.prefix + ".data-00001-of-00002"));
  EXPECT_TRUE(SavedCheckpoint::Open(files_, request.prefix).value()->Has("a/b c#1/deleted"));
  const auto restored = Restore(files_, request.prefix, reference.value(), options, 2);
  ASSERT_TRUE(restored.ok()) << restored.status().message();
  EXPECT_TRUE(StateOf(restored.value()) == StateOf(tables));
}

TEST(MemoryFilesTest, APowerCutLosesWhatIsNotSynced) {
  bool kept = false;
  bool lost = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    MemoryFiles files;
    ASSERT_TRUE(MakeFolders(files, "/a").ok());
    ASSERT_TRUE(WriteWholeFile(files, "/a/synced", "x").ok());
    ASSERT_TRUE(files.SyncFolder("/a").ok());
    ASSERT_TRUE(files.Create("/a/new").ok());
    files.CutPower(seed);
    std::string bytes;
    ASSERT_TRUE(ReadWholeFile(files, "/a/synced", 9, &bytes).ok());
    EXPECT_EQ(bytes, "x");
    (files.Exists("/a/new") ? kept : lost) = true;
  }
  EXPECT_TRUE(kept && lost);
}

}  // namespace
}  // namespace sok
