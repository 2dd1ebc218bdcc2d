// Where the files of a checkpoint are, under which names its tables are found, and what saves leave.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/memory_saves.h"
#include "cc/checkpoint/testing/rewritten_checkpoint.h"
#include "cc/checkpoint/testing/saved_ranks.h"

namespace sok {
namespace {

using Strings = std::vector<std::string>;

class CheckpointPlacesTest : public MemorySavesTest {
 protected:
  Strings FilesOf(const SaveRequest& request) {
    return EndsOf(files_, "/ckpt", request.prefix.substr(std::string("/ckpt/").size()));
  }
};

TEST_F(CheckpointPlacesTest, OneFileForEachRankAndAnIndex) {
  std::mt19937_64 random(11);
  const Tables tables = MakeTables(Options(), 3);
  ASSERT_TRUE(TrainOn(tables, "lazy_adam", kAdam, SomeKeys(), &random).ok());
  const SaveRequest request = Request(1);
  MustSave(tables, request);
  EXPECT_EQ(FilesOf(request),
            (Strings{".data-00000-of-00003", ".data-00001-of-00003", ".data-00002-of-00003", ".index"}));
  const Manifest manifest = ReadManifest(request);
  for (const SavedShard& shard : manifest.shards) {
    EXPECT_EQ(shard.arrays.size(), 4u);
    for (const auto& [name, array] : shard.arrays) EXPECT_EQ(array.offset % 4096, 0) << name;
  }
}

TEST_F(CheckpointPlacesTest, ARenamedCheckpointIsFound) {
  std::mt19937_64 random(11);
  const Tables tables = MakeTables(Options(), 1);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {1}, &random).ok());
  const SaveRequest request = Request(1);
  const std::string name = MustSave(tables, request);
  bool made = false;
  ASSERT_TRUE(files_.MakeFolder("/other", &made).ok());
  MoveCheckpoint(files_, request.prefix, "/other/best");
  EXPECT_TRUE(Restore("/other/best", name, Options(), 1, Parts()).ok());
  const auto lost = Restore(request.prefix, name, Options(), 1, Parts());
  EXPECT_EQ(lost.status().code(), StatusCode::kNotFound);
  EXPECT_NE(lost.status().message().find("scope/items"), std::string::npos) << lost.status().message();
}

TEST_F(CheckpointPlacesTest, AnyNameServesForTheTable) {
  std::mt19937_64 random(21);
  const Tables tables = MakeTables(Options(), 2);
  ASSERT_TRUE(TrainOn(tables, "adam", kAdam, SomeKeys(), &random).ok());
  int n = 0;
  for (const std::string& name :
       {std::string("other/name"), std::string("a#0"), std::string("x.sok-0"), std::string(300, '/'),
        std::string("Gr\xc3\xb6\xc3\x9f"
                    "e 1")}) {
    const SaveRequest request = Request(++n);
    EXPECT_EQ(MustSave(tables, request, name), name);
    EXPECT_EQ(ReadManifest(request, name).table.options.name, name);
    EXPECT_TRUE(StateOf(MustRestore(request, name, Options(), 2)) == StateOf(tables)) << name;
    EXPECT_EQ(Restore(request.prefix, "scope/items", Options(), 2, Parts()).status().code(),
              StatusCode::kNotFound);
  }
}

TEST_F(CheckpointPlacesTest, TablesOfACheckpointAreListed) {
  const Tables tables = MakeTables(Options(), 1);
  const Tables others = MakeTables(Options(2), 1);
  const SaveRequest request = Request(1);
  const std::vector<TableToSave> both = {{tables[0].get(), "b"}, {others[0].get(), "a"}};
  InlineExecutor executor;
  ASSERT_TRUE(BeginCheckpoint(ContextOn(executor), both, request).ok());
  ASSERT_TRUE(WriteCheckpointPart(ContextOn(executor), both, request).ok());
  ASSERT_TRUE(CommitCheckpoint(request, 1, false).ok());
  const auto checkpoint = SavedCheckpoint::Open(files_, request.prefix);
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint.value()->Tables().value(), (Strings{"a", "b"}));
  EXPECT_EQ(checkpoint.value()->ReadTable("a").value().table.options.dim, 2);
  EXPECT_EQ(checkpoint.value()->ReadFacts().value().id, request.id);
  EXPECT_EQ(checkpoint.value()->ReadTable("c").status().code(), StatusCode::kNotFound);
}

TEST_F(CheckpointPlacesTest, TwoTablesOfOneNameAreRefused) {
  const Tables tables = MakeTables(Options(), 1);
  const std::vector<TableToSave> both = {{tables[0].get(), "a"}, {tables[0].get(), "a"}};
  InlineExecutor executor;
  ASSERT_TRUE(BeginCheckpoint(ContextOn(executor), both, Request(1)).ok());
  const Status status = WriteCheckpointPart(ContextOn(executor), both, Request(1));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.message();
}

TEST_F(CheckpointPlacesTest, ASaveToTheSamePrefixReplacesAllFiles) {
  std::mt19937_64 random(23);
  const Tables tables = MakeTables(Options(), 2);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {1, 2}, &random).ok());
  SaveRequest request = Request(1);
  MustSave(tables, request);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {3, 4}, &random).ok());
  request.id = SaveId(7);
  const std::string name = MustSave(tables, request);
  EXPECT_TRUE(StateOf(MustRestore(request, name, Options(), 2)) == StateOf(tables));
  ASSERT_TRUE(RemoveLeftovers(files_, request.prefix).ok());
  EXPECT_EQ(FilesOf(request).size(), 6u) << "others may build on the old one";
  ASSERT_TRUE(RemoveRetired(files_, request.prefix).ok());
  EXPECT_EQ(FilesOf(request), (Strings{".data-00000-of-00003", ".data-00001-of-00003", ".index"}));
  EXPECT_TRUE(StateOf(MustRestore(request, name, Options(), 2)) == StateOf(tables));
}

TEST_F(CheckpointPlacesTest, LeftoversGoAndOtherFilesStay) {
  const Tables tables = MakeTables(Options(), 1);
  MustSave(tables, Request(1));
  const Strings others = {"/ckpt/model.ckpt-1.sok.lock",
                          "/ckpt/model.ckpt-10.data-00000-of-00005",
                          "/ckpt/model.ckpt-1.data-x-of-00005",
                          "/ckpt/model.ckpt-1.sok-notes",
                          "/ckpt/model.ckpt-1.meta",
                          "/ckpt/model.ckpt-1.sok-0123456789abcde.plan"};
  const Strings left = {"/ckpt/model.ckpt-1.data-00004-of-00005",
                        "/ckpt/model.ckpt-1.sok-0123456789abcdef.plan",
                        "/ckpt/model.ckpt-1.sok-0123456789abcdef.part-0.index"};
  for (const Strings& paths : {others, left}) {
    for (const std::string& path : paths) ASSERT_TRUE(WriteWholeFile(files_, path, "x").ok());
  }
  ASSERT_TRUE(RemoveLeftovers(files_, "/ckpt/model.ckpt-1").ok());
  for (const std::string& path : others) EXPECT_TRUE(files_.Exists(path)) << path;
  for (const std::string& path : left) EXPECT_FALSE(files_.Exists(path)) << path;
  EXPECT_TRUE(files_.Exists("/ckpt/model.ckpt-1.data-00000-of-00001"));
}

TEST_F(CheckpointPlacesTest, NothingIsRemovedWhileTheIndexCannotBeRead) {
  const Tables tables = MakeTables(Options(), 1);
  MustSave(tables, Request(1));
  files_.AllFiles().at("/ckpt/model.ckpt-1.index")->resize(20);
  EXPECT_EQ(RemoveLeftovers(files_, "/ckpt/model.ckpt-1").code(), StatusCode::kDataLoss);
  EXPECT_TRUE(files_.Exists("/ckpt/model.ckpt-1.data-00000-of-00001"));
}

// Tables are restored bit for bit from any placement of their rows to any other.

constexpr int64_t kStaticKeys = 24;

// Ranges; every third one is empty.
Placement UnevenRanges(int ranks) {
  std::vector<int64_t> boundaries = {0};
  for (int r = 1; r < ranks; ++r)
    boundaries.push_back(r % 3 == 2 ? boundaries.back() : boundaries.back() + 2 + r);
  boundaries.push_back(kStaticKeys);
  return Placement::Ranges(boundaries);
}

std::vector<Placement> Placements(int ranks) {
  return {Placement(), Placement::ByKey(kStaticKeys), Placement::OneRank(ranks - 1), Placement::AllRanks(),
          UnevenRanges(ranks)};
}

std::vector<int64_t> HashedKeys() {
  std::vector<int64_t> keys = HostileIds();
  const std::vector<int64_t> more = DistinctIds(60, 5);
  keys.insert(keys.end(), more.begin(), more.end());
  for (int64_t key = 0; key < 40; ++key) keys.push_back(key + 1000);
  return keys;
}

std::vector<int64_t> StaticKeys() {
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < kStaticKeys; ++key) keys.push_back(key);
  return keys;
}

int64_t CapacityOf(const Placement& placement, int ranks) {
  if (placement == Placement()) return kStaticKeys / ranks;
  int64_t capacity = 0;
  for (int r = 0; r < ranks; ++r)
    capacity = std::max(capacity, placement.RowsOn(r, ranks, kStaticKeys).count);
  return capacity;
}

class PlacedTablesTest : public MemorySavesTest {
 protected:
  static TableOptions Options(const Placement& placement, int ranks, bool hashed) {
    TableOptions options;
    options.name = "items";
    options.dim = 3;
    options.initializer.seed = 77;
    options.placement = placement;
    options.use_hashtable = hashed;
    if (!hashed) options.capacity = CapacityOf(placement, ranks);
    return options;
  }
  StatusOr<Tables> RestoreTo(const SaveRequest& request, const TableOptions& options, int ranks) {
    return Restore(request.prefix, options.name, options, ranks, Parts());
  }
  Manifest ManifestOf(const SaveRequest& request) { return ReadManifest(request, "items"); }

  // A slow engine takes fewer ways, of as many ranks.
  static std::vector<int> Either(const std::vector<int>& ranks, const std::vector<int>& if_slow) {
    return EngineOfTests().is_slow ? if_slow : ranks;
  }

  // Restores a checkpoint to every placement on every number of ranks.
  void ExpectInEveryPlace(const SaveRequest& request, const TableState& state, bool hashed) {
    for (const int ranks : Either({1, 2, 3, 4}, {2, 4})) {
      for (const Placement& placement : Placements(ranks)) {
        SCOPED_TRACE(StrCat("to ", placement.Text(), " on ", ranks));
        auto restored = RestoreTo(request, Options(placement, ranks, hashed), ranks);
        ASSERT_TRUE(restored.ok()) << restored.status().message();
        EXPECT_TRUE(StateOf(restored.value()) == state);
        for (const auto& table : restored.value()) {
          const int rank = table->options().rank;
          const KeyOwners owners = placement.owners(ranks);
          for (const int64_t key : KeysOf(table.get())) ASSERT_TRUE(owners.Holds(rank, key)) << key;
          TableState own;
          AddState(table.get(), &own);
          EXPECT_TRUE(!placement.is_replicated() || own == state) << "replica " << rank;
        }
      }
    }
  }

  void ExpectRoundTrips(bool hashed) {
    const std::vector<int64_t> keys = hashed ? HashedKeys() : StaticKeys();
    uint64_t save = 0;
    for (const int ranks : Either({1, 2, 3}, {1, 3})) {
      for (const Placement& placement : Placements(ranks)) {
        SCOPED_TRACE(StrCat("from ", placement.Text(), " on ", ranks));
        std::mt19937_64 random(1);
        const Tables tables = MakeTables(Options(placement, ranks, hashed), ranks);
        ASSERT_FALSE(tables.empty());
        for (int t = 0; t < 5; ++t) {
          ASSERT_TRUE(TrainOnSome(tables, "adam", kAdam, keys, 0.5, &random).ok());
        }
        const SaveRequest full = Request(++save, /*delta=*/true);
        MustSave(tables, full);
        ExpectInEveryPlace(full, StateOf(tables), hashed);

        for (int t = 0; t < 3; ++t) {
          ASSERT_TRUE(TrainOnSome(tables, "adam", kAdam, keys, 0.2, &random).ok());
        }
        if (hashed) {
          for (const auto& table : tables) {
            ASSERT_TRUE(Erase(table.get(), {keys.begin(), keys.begin() + 20}).ok());
          }
        }
        const SaveRequest delta = Request(++save, /*delta=*/true);
        MustSave(tables, delta);
        EXPECT_TRUE(IsDelta(delta, "items"));
        ExpectInEveryPlace(delta, StateOf(tables), hashed);
      }
    }
  }
};

TEST_F(PlacedTablesTest, HashedTablesMoveFromAnyPlacementToAnyOther) { ExpectRoundTrips(/*hashed=*/true); }
TEST_F(PlacedTablesTest, StaticTablesMoveFromAnyPlacementToAnyOther) { ExpectRoundTrips(/*hashed=*/false); }

TEST_F(PlacedTablesTest, WaitingIdsMoveWithTheRows) {
  uint64_t save = 0;
  for (const Placement& placement : Placements(3)) {
    SCOPED_TRACE(placement.Text());
    TableOptions options = Options(placement, 3, /*hashed=*/true);
    options.admission.kind = Admission::Kind::kCounter;
    options.admission.filter_freq = 4;
    std::mt19937_64 random(6);
    const Tables tables = MakeTables(options, 3);
    for (int t = 0; t < 4; ++t) {
      ASSERT_TRUE(TrainOnSome(tables, "sgd", {0.1f}, HashedKeys(), 0.3, &random).ok());
    }
    const SaveRequest request = Request(++save);
    MustSave(tables, request);
    const TableState state = StateOf(tables);
    EXPECT_FALSE(state.waiting.empty());
    EXPECT_FALSE(state.rows.empty());
    for (const int ranks : Either({1, 2, 3}, {2})) {
      for (const Placement& to : Placements(ranks)) {
        options.placement = to;
        auto restored = RestoreTo(request, options, ranks);
        ASSERT_TRUE(restored.ok()) << restored.status().message();
        EXPECT_TRUE(StateOf(restored.value()) == state) << to.Text() << " on " << ranks;
      }
    }
  }
}

TEST_F(PlacedTablesTest, PlacementByKeyIsNotInTheEntry) {
  uint64_t save = 0;
  for (const Placement& placement : Placements(2)) {
    const Tables tables = MakeTables(Options(placement, 2, /*hashed=*/true), 2);
    const SaveRequest request = Request(++save);
    MustSave(tables, request);
    const std::string text =
        SavedCheckpoint::Open(files_, request.prefix).value()->ReadString("items").value();
    EXPECT_EQ(text.find("placement") == std::string::npos, placement == Placement());
    EXPECT_TRUE(ManifestOf(request).table.options.placement == placement);
  }
}

// Replicas are saved once.
TEST_F(PlacedTablesTest, TheFirstShardHasTheRowsOfReplicas) {
  std::mt19937_64 random(2);
  const Tables tables = MakeTables(Options(Placement::AllRanks(), 3, /*hashed=*/true), 3);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {1, 2, 3}, &random).ok());
  const SaveRequest request = Request(1);
  MustSave(tables, request);
  const Manifest manifest = ManifestOf(request);
  EXPECT_EQ(manifest.rows(), 3);
  for (int shard = 0; shard < 3; ++shard) {
    EXPECT_EQ(manifest.shards[static_cast<size_t>(shard)].rows, shard == 0 ? 3 : 0);
  }
}

TEST_F(PlacedTablesTest, KeysInTheWrongShardAreDataLoss) {
  std::mt19937_64 random(3);
  const Tables tables = MakeTables(Options(Placement::OneRank(1), 2, /*hashed=*/true), 2);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {1, 2, 3}, &random).ok());
  const SaveRequest request = Request(1);
  MustSave(tables, request);
  RewrittenCheckpoint rewritten(files_, request.prefix);
  Manifest manifest = rewritten.ReadTable("items");
  manifest.table.options.placement = Placement::OneRank(0);
  rewritten.SetTable("items", manifest);
  rewritten.Write();
  const Status status = RestoreTo(request, Options(Placement(), 1, /*hashed=*/true), 1).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("belongs to shard 0"), std::string::npos) << status.message();
}

TEST_F(PlacedTablesTest, StaticTablesWithFewerKeysAreRefused) {
  const Tables tables = MakeTables(Options(UnevenRanges(3), 3, /*hashed=*/false), 3);
  const SaveRequest request = Request(1);
  MustSave(tables, request);
  TableOptions options = Options(Placement::OneRank(0), 2, /*hashed=*/false);
  options.capacity = kStaticKeys - 1;
  const Status status = RestoreTo(request, options, 2).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("'items'"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("end at 23"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace sok
