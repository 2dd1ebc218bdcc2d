// After any fault during a save, and any damage of files, the last good checkpoint is restored exactly, or
// the restore fails with a clear error.
#include <gtest/gtest.h>

#include <map>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/rewritten_checkpoint.h"
#include "cc/checkpoint/testing/saved_ranks.h"

namespace sok {
namespace {

TableOptions Options() {
  TableOptions options;
  options.name = "items";
  options.dim = 5;
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 3;
  return options;
}

Status Train(const Tables& tables, int steps, std::mt19937_64* random) {
  static const std::vector<int64_t> keys = DistinctIds(60, 3);
  for (int t = 0; t < steps; ++t) {
    SOK_RETURN_IF_ERROR(TrainOnSome(tables, "adam", kAdam, keys, 0.3, random));
  }
  return OkStatus();
}

StatusOr<Tables> RestoreFrom(Files* files, int n, const std::string& reference, int ranks) {
  return Restore(*files, NthSave(n, false, files).prefix, reference, Options(), ranks);
}

void ExpectRestored(Files* files, int n, const std::string& reference, int ranks, const TableState& state,
                    const std::string& what) {
  const auto restored = RestoreFrom(files, n, reference, ranks);
  ASSERT_TRUE(restored.ok()) << what << ": " << restored.status().message();
  EXPECT_TRUE(StateOf(restored.value()) == state) << what;
}

// A good checkpoint, and the state for a second one.
struct TwoSaves {
  TwoSaves(int num_ranks, bool with_delta) : ranks(num_ranks), delta(with_delta) {
    tables = MakeTables(Options(), ranks);
    EXPECT_TRUE(Train(tables, 6, &random).ok());
    auto saved = Save(tables, NthSave(1, true, &disk));
    EXPECT_TRUE(saved.ok()) << saved.status().message();
    reference = saved.value();
    before = StateOf(tables);
    EXPECT_TRUE(Train(tables, 4, &random).ok());
  }
  // The second save, on files that fail.
  StatusOr<std::string> SaveAgain(Files* files) { return Save(tables, NthSave(2, delta, files)); }

  const int ranks;
  const bool delta;
  MemoryFiles disk;
  std::mt19937_64 random{1};
  Tables tables;
  std::string reference;
  TableState before;
};

// Ranks, and whether the second save is a delta.
std::vector<std::pair<int, bool>> Saves() {
  if (EngineOfTests().is_slow) return {{1, true}, {2, false}};
  return {{1, false}, {1, true}, {3, false}, {3, true}};
}

// The number of operations by which a test advances. Only file operations fail, so a slow engine is tested
// with only some of the failures, and AddressSanitizer sees a third of them.
int64_t Stride() {
#ifdef __SANITIZE_ADDRESS__
  constexpr int64_t kEach = 3;
#else
  constexpr int64_t kEach = 1;
#endif
  return EngineOfTests().is_slow ? 29 : kEach;
}

// How often a test repeats something random.
int Times(int times) { return EngineOfTests().is_slow ? times / 10 : times; }

int64_t OperationsOf(int ranks, bool delta) {
  TwoSaves saves(ranks, delta);
  FailingFiles counted(&saves.disk, -1, FailingFiles::Mode::kDies);
  EXPECT_TRUE(saves.SaveAgain(&counted).ok());
  return counted.operations();
}

void ExpectFirstSave(TwoSaves* saves, const std::string& what) {
  ExpectRestored(&saves->disk, 1, saves->reference, saves->ranks, saves->before, what);
}

// Expects that the second checkpoint is complete if there is one.
void ExpectNoHalf(TwoSaves* saves, const std::string& what) {
  if (!saves->disk.Exists("/ckpt/model.ckpt-2.index")) return;
  ExpectRestored(&saves->disk, 2, "items", saves->ranks, StateOf(saves->tables), what);
}

TEST(FaultsTest, KilledAtAnyOperation) {
  for (const auto& [ranks, delta] : Saves()) {
    const int64_t operations = OperationsOf(ranks, delta);
    EXPECT_GT(operations, 15);
    for (int64_t k = 0; k < operations; k += Stride()) {
      const std::string what = StrCat(ranks, delta ? " ranks, delta, " : " ranks, full, ", "operation ", k);
      TwoSaves saves(ranks, delta);
      FailingFiles dying(&saves.disk, k, FailingFiles::Mode::kDies);
      EXPECT_FALSE(saves.SaveAgain(&dying).ok() && k < 10) << what;
      ExpectFirstSave(&saves, what);
      ExpectNoHalf(&saves, what);
      // A new process saves with the same prefix.
      auto restored = RestoreFrom(&saves.disk, 1, saves.reference, ranks);
      SaveRequest request = NthSave(2, delta, &saves.disk);
      request.id = SaveId(7);
      const auto again = Save(restored.value(), request);
      ASSERT_TRUE(again.ok()) << what << ": " << again.status().message();
      ExpectRestored(&saves.disk, 2, again.value(), ranks, saves.before, what);
    }
  }
}

TEST(FaultsTest, PowerCutAtAnyOperation) {
  for (const auto& [ranks, delta] : Saves()) {
    const int64_t operations = OperationsOf(ranks, delta);
    for (int64_t k = 0; k <= operations; k += Stride()) {
      for (uint64_t seed = 0; seed < (EngineOfTests().is_slow ? 1 : 3); ++seed) {
        const std::string what =
            StrCat(ranks, delta ? " ranks, delta, " : " ranks, full, ", "operation ", k, ", seed ", seed);
        TwoSaves saves(ranks, delta);
        FailingFiles dying(&saves.disk, k, FailingFiles::Mode::kDies);
        const auto saved = saves.SaveAgain(&dying);
        saves.disk.CutPower(seed);
        ExpectFirstSave(&saves, what);
        ExpectNoHalf(&saves, what);
        if (!saved.ok()) continue;
        ExpectRestored(&saves.disk, 2, saved.value(), ranks, StateOf(saves.tables), what);
      }
    }
  }
}

TEST(FaultsTest, DiskFullAtAnyWrite) {
  for (const auto& [ranks, delta] : Saves()) {
    const int64_t operations = OperationsOf(ranks, delta);
    for (int64_t k = 0; k < operations; k += Stride()) {
      const std::string what = StrCat(ranks, delta ? " ranks, delta, " : " ranks, full, ", "operation ", k);
      TwoSaves saves(ranks, delta);
      FailingFiles full(&saves.disk, k, FailingFiles::Mode::kFailsOnce, StatusCode::kResourceExhausted);
      const auto saved = saves.SaveAgain(&full);
      if (!saved.ok()) {
        EXPECT_EQ(saved.status().code(), StatusCode::kResourceExhausted) << what;
        EXPECT_NE(saved.status().message().find("/ckpt"), std::string::npos) << saved.status().message();
        ExpectNoHalf(&saves, what);
        if (!saves.disk.Exists("/ckpt/model.ckpt-2.index")) {
          EXPECT_TRUE(EndsOf(saves.disk, "/ckpt", "model.ckpt-2").empty()) << what;
        }
      }
      ExpectFirstSave(&saves, what);
      // Training and saving continue.
      ASSERT_TRUE(Train(saves.tables, 1, &saves.random).ok()) << what;
      const auto again = Save(saves.tables, NthSave(3, delta, &saves.disk));
      ASSERT_TRUE(again.ok()) << what << ": " << again.status().message();
      ExpectRestored(&saves.disk, 3, again.value(), ranks, StateOf(saves.tables), what);
    }
  }
}

TEST(FaultsTest, ASaveToTheSamePrefixKeepsTheOldOne) {
  TwoSaves saves(2, false);
  SaveRequest request = NthSave(1, false, &saves.disk);
  request.id = SaveId(9);
  for (const auto& table : saves.tables) ASSERT_TRUE(Begin(table.get(), request).ok());
  for (const auto& table : saves.tables) {
    ASSERT_TRUE(Write(table.get(), request).ok());
    ExpectFirstSave(&saves, "while shards are written");
  }
  ASSERT_TRUE(CommitCheckpoint(request, 2, false).ok());
  ExpectRestored(&saves.disk, 1, saves.reference, 2, StateOf(saves.tables), "after the commit");
}

TEST(FaultsTest, ASaveToTheSamePrefixIsKilledAtAnyOperation) {
  const auto save = [](TwoSaves* saves, Files* files) {
    SaveRequest request = NthSave(1, false, files);
    request.id = SaveId(9);
    return Save(saves->tables, request);
  };
  TwoSaves good(2, false);
  FailingFiles counted(&good.disk, -1, FailingFiles::Mode::kDies);
  ASSERT_TRUE(save(&good, &counted).ok());
  for (int64_t k = 0; k < counted.operations(); k += Stride()) {
    TwoSaves saves(2, false);
    FailingFiles dying(&saves.disk, k, FailingFiles::Mode::kDies);
    static_cast<void>(save(&saves, &dying).ok());
    saves.disk.CutPower(static_cast<uint64_t>(k));
    auto restored = RestoreFrom(&saves.disk, 1, saves.reference, 2);
    ASSERT_TRUE(restored.ok()) << k << ": " << restored.status().message();
    const TableState state = StateOf(restored.value());
    EXPECT_TRUE(state == saves.before || state == StateOf(saves.tables)) << k;
  }
}

TEST(FaultsTest, AMissingPartIsNotCommitted) {
  const Tables tables = MakeTables(Options(), 2);
  MemoryFiles disk;
  const SaveRequest request = NthSave(1, false, &disk);
  EXPECT_EQ(Write(tables[0].get(), request).code(), StatusCode::kNotFound);
  ASSERT_TRUE(Begin(tables[0].get(), request).ok());
  ASSERT_TRUE(Write(tables[0].get(), request).ok());
  EXPECT_EQ(CommitCheckpoint(request, 2, false).code(), StatusCode::kNotFound);
  EXPECT_FALSE(disk.Exists("/ckpt/model.ckpt-1.index"));
}

TEST(FaultsTest, IdsAndPrefixesAreChecked) {
  const Tables tables = MakeTables(Options(), 1);
  MemoryFiles disk;
  SaveRequest request = NthSave(1, false, &disk);
  for (const std::string id : {"", "12", "../../../../etc/x", "00C0FFEE00C0FFEE", "g000000000000000"}) {
    request.id = id;
    EXPECT_EQ(Begin(tables[0].get(), request).code(), StatusCode::kInvalidArgument) << id;
  }
  request = NthSave(1, false, &disk);
  request.prefix = "/ckpt/";
  EXPECT_EQ(Begin(tables[0].get(), request).code(), StatusCode::kInvalidArgument);
}

// After damage of any kind, the restored state is exact, or the error names the file.
class DamageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tables_ = MakeTables(Options(), 2);
    for (int n = 1; n <= 3; ++n) {
      EXPECT_TRUE(Train(tables_, 4, &random_).ok());
      reference_ = Save(tables_, NthSave(n, true, &disk_)).value();
    }
    state_ = StateOf(tables_);
    for (const auto& [path, bytes] : disk_.AllFiles()) good_[path] = *bytes;
    for (const auto& entry : good_) paths_.push_back(entry.first);
  }
  const std::string& AnyPath() { return paths_[random_() % paths_.size()]; }
  // The files that tests damage: on a slow engine every fifth, sorted by name, so that there are some of each
  // kind.
  std::vector<std::string> PathsToDamage() const {
    std::vector<std::string> paths;
    for (size_t p = 0; p < paths_.size(); p += EngineOfTests().is_slow ? 5 : 1) paths.push_back(paths_[p]);
    return paths;
  }

  static void WriteAll(const std::map<std::string, std::string>& contents, MemoryFiles* disk) {
    for (const auto& [path, bytes] : contents) {
      EXPECT_TRUE(MakeFolders(*disk, path.substr(0, path.rfind('/'))).ok());
      EXPECT_TRUE(WriteWholeFile(*disk, path, bytes).ok());
    }
  }
  // Restores from a new disk with these files.
  Status Read(const std::map<std::string, std::string>& contents) {
    MemoryFiles disk;
    WriteAll(contents, &disk);
    SOK_ASSIGN_OR_RETURN(auto restored, RestoreFrom(&disk, 3, reference_, 2));
    EXPECT_TRUE(StateOf(restored) == state_) << "a wrong table";
    return OkStatus();
  }
  void ExpectRefused(const std::map<std::string, std::string>& contents, const std::string& path,
                     const std::string& what) {
    const Status status = Read(contents);
    EXPECT_FALSE(status.ok()) << what << " " << path;
    EXPECT_TRUE(status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kNotFound)
        << what << ": " << status.message();
    EXPECT_NE(status.message().find(path), std::string::npos)
        << what << " " << path << ": " << status.message();
  }

  std::mt19937_64 random_{5};
  MemoryFiles disk_;
  Tables tables_;
  std::string reference_;
  TableState state_;
  std::map<std::string, std::string> good_;
  std::vector<std::string> paths_;
};

TEST_F(DamageTest, UndamagedIsRead) { EXPECT_TRUE(Read(good_).ok()); }

TEST_F(DamageTest, FlippedBits) {
  for (int i = 0; i < Times(300); ++i) {
    auto contents = good_;
    const std::string& path = AnyPath();
    std::string& bytes = contents[path];
    bytes[random_() % bytes.size()] ^= static_cast<char>(1 << random_() % 8);
    const bool is_index = path.find(".index") != std::string::npos;
    // Between two tensors, the bytes mean nothing.
    if (is_index || !Read(contents).ok()) ExpectRefused(contents, path, "flipped");
  }
}

TEST_F(DamageTest, AFlippedBitOfAnyTensor) {
  for (int n = 1; n <= 3; ++n) {
    const auto checkpoint = SavedCheckpoint::Open(disk_, NthSave(n, false, &disk_).prefix).value();
    for (const auto& [name, entry] : checkpoint->index().entries) {
      const TensorPlace place = checkpoint->Find(name).value();
      if (place.bytes == 0) continue;
      const std::string path = checkpoint->DataFile(place.shard);
      auto contents = good_;
      const uint64_t at =
          static_cast<uint64_t>(place.offset) + random_() % static_cast<uint64_t>(place.bytes);
      contents[path][at] ^= static_cast<char>(1 << random_() % 8);
      // The last checkpoint's alphas have those of earlier ones.
      const bool is_read = n == 3 || name.find("/alphas") == std::string::npos;
      if (is_read) {
        ExpectRefused(contents, path, name);
      } else {
        EXPECT_TRUE(Read(contents).ok()) << path << " " << name;
      }
    }
  }
}

TEST_F(DamageTest, OtherLengths) {
  for (const std::string& path : PathsToDamage()) {
    for (int i = 0; i < (EngineOfTests().is_slow ? 1 : 3); ++i) {
      auto contents = good_;
      contents[path].resize(random_() % contents[path].size());
      ExpectRefused(contents, path, "cut");
    }
    // What comes after the last tensor means nothing.
    if (path.find(".index") == std::string::npos) continue;
    auto contents = good_;
    contents[path] += std::string(1 + random_() % 9, static_cast<char>(random_()));
    ExpectRefused(contents, path, "longer");
  }
}

TEST_F(DamageTest, MissingFiles) {
  for (const std::string& path : PathsToDamage()) {
    auto contents = good_;
    contents.erase(path);
    ExpectRefused(contents, path, "missing");
  }
}

TEST_F(DamageTest, SwappedFiles) {
  for (int i = 0; i < Times(200); ++i) {
    const std::string& one = AnyPath();
    const std::string& other = AnyPath();
    auto contents = good_;
    if (contents[one] == contents[other]) continue;
    std::swap(contents[one], contents[other]);
    const Status status = Read(contents);
    EXPECT_FALSE(status.ok()) << one << " " << other;
    // An index that is another's is found by the data file that does not fit it.
    const auto prefix_of = [](const std::string& path) { return path.substr(0, path.rfind('.')); };
    EXPECT_TRUE(status.message().find(prefix_of(one)) != std::string::npos ||
                status.message().find(prefix_of(other)) != std::string::npos)
        << status.message();
  }
}

TEST_F(DamageTest, ACheckpointOfAnotherRunInItsPlace) {
  const Tables others = MakeTables(Options(), 2);
  MemoryFiles disk;
  EXPECT_TRUE(Train(others, 3, &random_).ok());
  ASSERT_TRUE(Save(others, NthSave(2, false, &disk)).ok());
  auto contents = good_;
  for (const auto& [path, bytes] : disk.AllFiles()) contents[path] = *bytes;
  const Status status = Read(contents);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
  EXPECT_NE(status.message().find("model.ckpt-2.index"), std::string::npos) << status.message();
}

TEST_F(DamageTest, CheckFindsTheErrorsOfLoadAndChangesNothing) {
  auto contents = good_;
  const auto checkpoint = SavedCheckpoint::Open(disk_, "/ckpt/model.ckpt-1").value();
  const TensorPlace place = checkpoint->Find("items#1/values").value();
  const std::string path = checkpoint->DataFile(place.shard);
  ASSERT_EQ(contents.count(path), 1u);
  contents[path][static_cast<size_t>(place.offset)] ^= 1;
  MemoryFiles disk;
  WriteAll(contents, &disk);
  TableOptions options = Options();
  options.ranks = 2;
  options.rank = 1;
  OpenedCheckpoints opened(disk);
  auto restore =
      TableRestore::Open(opened, NthSave(3, false, &disk).prefix, reference_, options, RestoreParts());
  ASSERT_TRUE(restore.ok());
  const Status checked = restore.value()->Check();
  const Status loaded = Load(restore.value().get()).status();
  EXPECT_EQ(checked.code(), StatusCode::kDataLoss);
  EXPECT_EQ(loaded.code(), StatusCode::kDataLoss);
  EXPECT_EQ(checked.message(), loaded.message());
  EXPECT_NE(checked.message().find("'items'"), std::string::npos) << checked.message();
}

}  // namespace
}  // namespace sok
