// After any fault during a save, and any damage of files, the last good checkpoint is restored exactly, or
// the restore fails with a clear error.
#include <gtest/gtest.h>

#include <map>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/testing/failing_files.h"
#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/saved_ranks.h"
#include "cc/checkpoint/testing/table_files.h"

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
  RestoreParts parts;
  parts.files = files;
  return Restore(NthSave(n, false, files).prefix, reference, Options(), ranks, parts);
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
  auto restored = RestoreFrom(&saves->disk, 1, saves->reference, saves->ranks);
  ASSERT_TRUE(restored.ok()) << what << ": " << restored.status().message();
  EXPECT_TRUE(StateOf(restored.value()) == saves->before) << what;
}

// Expects that every manifest is of a complete checkpoint.
void ExpectNoHalves(TwoSaves* saves, const std::string& what) {
  const std::string manifest = ".manifest.json";
  for (const std::string& end : EndsOf(saves->disk, "/ckpt", "model.ckpt-2.sok-")) {
    if (end.size() < manifest.size() || end.substr(end.size() - manifest.size()) != manifest) continue;
    const std::string table = "/ckpt/model.ckpt-2.sok/" + end.substr(0, end.size() - manifest.size());
    auto restored = RestoreFrom(&saves->disk, 2, table, saves->ranks);
    ASSERT_TRUE(restored.ok()) << what << ": " << restored.status().message();
    EXPECT_TRUE(StateOf(restored.value()) == StateOf(saves->tables)) << what;
  }
}

TEST(FaultsTest, KilledAtAnyOperation) {
  for (const auto& [ranks, delta] : Saves()) {
    const int64_t operations = OperationsOf(ranks, delta);
    EXPECT_GT(operations, 20);
    for (int64_t k = 0; k < operations; k += Stride()) {
      const std::string what = StrCat(ranks, delta ? " ranks, delta, " : " ranks, full, ", "operation ", k);
      TwoSaves saves(ranks, delta);
      FailingFiles dying(&saves.disk, k, FailingFiles::Mode::kDies);
      EXPECT_FALSE(saves.SaveAgain(&dying).ok() && k < 20) << what;
      ExpectFirstSave(&saves, what);
      ExpectNoHalves(&saves, what);
      // A new process saves with the same prefix.
      auto restored = RestoreFrom(&saves.disk, 1, saves.reference, ranks);
      SaveRequest request = NthSave(2, delta, &saves.disk);
      request.id = SaveId(7);
      const auto again = Save(restored.value(), request);
      ASSERT_TRUE(again.ok()) << what << ": " << again.status().message();
      const auto after = RestoreFrom(&saves.disk, 2, again.value(), ranks);
      ASSERT_TRUE(after.ok()) << what << ": " << after.status().message();
      EXPECT_TRUE(StateOf(after.value()) == saves.before) << what;
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
        ExpectNoHalves(&saves, what);
        if (!saved.ok()) continue;
        const auto restored = RestoreFrom(&saves.disk, 2, saved.value(), ranks);
        ASSERT_TRUE(restored.ok()) << what << ": " << restored.status().message();
        EXPECT_TRUE(StateOf(restored.value()) == StateOf(saves.tables)) << what;
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
        EXPECT_NE(saved.status().message().find("'items'"), std::string::npos) << saved.status().message();
        EXPECT_TRUE(EndsOf(saves.disk, "/ckpt", "model.ckpt-2.sok").empty()) << what;
      }
      ExpectFirstSave(&saves, what);
      // Training and saving continue.
      ASSERT_TRUE(Train(saves.tables, 1, &saves.random).ok()) << what;
      const auto again = Save(saves.tables, NthSave(3, delta, &saves.disk));
      ASSERT_TRUE(again.ok()) << what << ": " << again.status().message();
      auto restored = RestoreFrom(&saves.disk, 3, again.value(), ranks);
      ASSERT_TRUE(restored.ok()) << what << ": " << restored.status().message();
      EXPECT_TRUE(StateOf(restored.value()) == StateOf(saves.tables)) << what;
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
  const auto reference = PublishTableCheckpoint(saves.tables[0]->options(), request);
  ASSERT_TRUE(reference.ok());
  ExpectFirstSave(&saves, "while TensorFlow writes its files");
  for (const auto& table : saves.tables) EXPECT_TRUE(End(table.get(), request, true).ok());
  ExpectFirstSave(&saves, "once the new one is complete");
  EXPECT_TRUE(RestoreFrom(&saves.disk, 1, reference.value(), 2).ok());
}

TEST(FaultsTest, AMissingShardIsNotPublished) {
  const Tables tables = MakeTables(Options(), 2);
  MemoryFiles disk;
  const SaveRequest request = NthSave(1, false, &disk);
  EXPECT_EQ(Write(tables[0].get(), request).code(), StatusCode::kNotFound);
  ASSERT_TRUE(Begin(tables[0].get(), request).ok());
  ASSERT_TRUE(Write(tables[0].get(), request).ok());
  EXPECT_EQ(PublishTableCheckpoint(tables[0]->options(), request).status().code(), StatusCode::kNotFound);
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

  // Restores from a new disk with these files.
  Status Read(const std::map<std::string, std::string>& contents) {
    MemoryFiles disk;
    for (const auto& [path, bytes] : contents) {
      EXPECT_TRUE(MakeFolders(disk, path.substr(0, path.rfind('/'))).ok());
      EXPECT_TRUE(WriteWholeFile(disk, path, bytes).ok());
    }
    auto restored = RestoreFrom(&disk, 3, reference_, 2);
    if (!restored.ok()) return restored.status();
    EXPECT_TRUE(StateOf(restored.value()) == state_) << "a wrong table";
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
    ExpectRefused(contents, path, "flipped");
  }
}

TEST_F(DamageTest, OtherLengths) {
  for (const std::string& path : PathsToDamage()) {
    for (int i = 0; i < (EngineOfTests().is_slow ? 1 : 3); ++i) {
      auto contents = good_;
      contents[path].resize(random_() % contents[path].size());
      ExpectRefused(contents, path, "cut");
    }
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
    EXPECT_TRUE(status.message().find(one) != std::string::npos ||
                status.message().find(other) != std::string::npos)
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
  EXPECT_NE(status.message().find("model.ckpt-2.sok"), std::string::npos) << status.message();
}

TEST_F(DamageTest, CheckFindsTheErrorsOfLoadAndChangesNothing) {
  auto contents = good_;
  const std::string path = "/ckpt/model.ckpt-1.sok-items-" + SaveId(1) + ".shard-00001.values.npy";
  ASSERT_EQ(contents.count(path), 1u);
  contents[path].back() ^= 1;
  MemoryFiles disk;
  for (const auto& [file, bytes] : contents) {
    ASSERT_TRUE(MakeFolders(disk, file.substr(0, file.rfind('/'))).ok());
    ASSERT_TRUE(WriteWholeFile(disk, file, bytes).ok());
  }
  RestoreParts parts;
  parts.files = &disk;
  TableOptions options = Options();
  options.ranks = 2;
  options.rank = 1;
  auto restore = TableRestore::Open(NthSave(3, false, &disk).prefix, reference_, options, parts);
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
