// Where the files of a checkpoint are, under which names its tables are found, and what saves leave.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/testing/memory_saves.h"
#include "cc/checkpoint/testing/table_files.h"

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

}  // namespace
}  // namespace sok
