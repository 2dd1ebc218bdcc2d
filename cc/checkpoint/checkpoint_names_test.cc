// Where a checkpoint of a table is found, and how its files are named.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cc/checkpoint/chain.h"
#include "cc/checkpoint/testing/memory_saves.h"
#include "cc/checkpoint/testing/table_files.h"

namespace sok {
namespace {

class CheckpointNamesTest : public MemorySavesTest {};

TEST_F(CheckpointNamesTest, ARenamedCheckpointIsFound) {
  std::mt19937_64 random(11);
  const Tables tables = MakeTables(Options(), 1);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {1}, &random).ok());
  const SaveRequest request = Request(1);
  const std::string reference = MustSave(tables, request);
  ASSERT_TRUE(files_.MakeFolder("/other").ok());
  MoveTables(files_, "/ckpt", "model.ckpt-1", "/other/best");
  EXPECT_TRUE(Restore("/other/best", reference, Options(), 1, Parts()).ok());
  const auto lost = Restore(request.prefix, reference, Options(), 1, Parts());
  EXPECT_EQ(lost.status().code(), StatusCode::kNotFound);
  EXPECT_NE(lost.status().message().find("scope/items"), std::string::npos) << lost.status().message();
}

TEST_F(CheckpointNamesTest, FoldersOfEarlierVersionsAreRead) {
  std::mt19937_64 random(23);
  const Tables tables = MakeTables(Options(), 2);
  std::string reference;
  for (int n = 1; n <= 3; ++n) {
    ASSERT_TRUE(TrainOnSome(tables, "adam", kAdam, SomeKeys(), 0.3, &random).ok());
    reference = MustSave(tables, Request(n, true));
    EXPECT_EQ(IsDelta(Request(n)), n > 1);
    std::vector<std::string> names;
    ASSERT_TRUE(files_.List("/ckpt", &names).ok());
    for (const std::string& name : names) EXPECT_FALSE(files_.IsFolder("/ckpt/" + name) && n == 1) << name;
    // The third is saved beside folders, on which it builds.
    if (n == 3) break;
    MoveIntoFolder(files_, "/ckpt", StrCat("model.ckpt-", n), "scope%2Fitems-" + Request(n).id);
    EXPECT_TRUE(files_.IsFolder(StrCat("/ckpt/model.ckpt-", n, ".sok")));
    EXPECT_TRUE(StateOf(MustRestore(Request(n), reference, Options(), 2)) == StateOf(tables)) << n;
  }
  EXPECT_TRUE(StateOf(MustRestore(Request(3), reference, Options(), 2)) == StateOf(tables));
}

TEST_F(CheckpointNamesTest, ATableIsNotTakenForAnotherPrefix) {
  const Tables tables = MakeTables(Options(), 1);
  SaveRequest request = Request(1);
  request.name = "a.sok-b";
  const std::string reference = MustSave(tables, request);
  EXPECT_EQ(EndsOf(files_, "/ckpt", "model.ckpt-1.sok-a%2Esok-b-" + request.id + ".manifest").size(), 1u);
  MustRestore(request, reference, Options(), 1);
}

TEST_F(CheckpointNamesTest, LongNamesFitIntoAFileName) {
  TableOptions options = Options();
  options.name = std::string(300, '/');
  for (const size_t length : {1, 60, 150}) {
    const Tables tables = MakeTables(options, 1);
    SaveRequest request = Request(1);
    request.prefix = "/ckpt/" + std::string(length, 'p');
    const std::string reference = MustSave(tables, request);
    EXPECT_TRUE(Restore(request.prefix, reference, options, 1, Parts()).ok());
    std::vector<std::string> names;
    ASSERT_TRUE(files_.List("/ckpt", &names).ok());
    for (const std::string& name : names) EXPECT_LE(name.size(), 255u) << name;
  }
}

TEST_F(CheckpointNamesTest, APathServesAsReference) {
  const Tables tables = MakeTables(Options(), 1);
  const SaveRequest request = Request(1);
  MustSave(tables, request);
  const std::string folder = "/ckpt/model.ckpt-1.sok/scope%2Fitems-" + request.id;
  EXPECT_TRUE(Restore("/elsewhere/x", folder, Options(), 1, Parts()).ok());
}

TEST_F(CheckpointNamesTest, ACheckpointMayHaveAnotherNameForTheTable) {
  std::mt19937_64 random(21);
  const Tables tables = MakeTables(Options(), 2);
  ASSERT_TRUE(TrainOn(tables, "adam", kAdam, SomeKeys(), &random).ok());
  SaveRequest request = Request(1);
  request.name = "other/name";
  MustSave(tables, request);
  request.id = SaveId(2);
  const std::string reference = MustSave(tables, request);
  auto manifest = ReadCheckpointManifest(files_, "/ckpt/model.ckpt-1.sok/other%2Fname-" + request.id);
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  EXPECT_EQ(manifest.value().manifest.table.options.name, "other/name");
  EXPECT_TRUE(StateOf(MustRestore(request, reference, Options(), 2)) == StateOf(tables));
}

TEST_F(CheckpointNamesTest, SavesToOnePrefixDoNotChangeEachOther) {
  const Tables tables = MakeTables(Options(), 2);
  const Tables others = MakeTables(Options(), 2);
  SaveRequest request = Request(1);
  const std::string first = MustSave(tables, request);
  request.id = SaveId(2);
  ASSERT_TRUE(Begin(others[0].get(), request).ok());
  SaveRequest later = Request(1);
  later.id = SaveId(3);
  const std::string second = MustSave(tables, later);
  for (const auto& table : others) {
    const Status status = Write(table.get(), request);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  const auto third = PublishTableCheckpoint(others[0]->options(), request);
  ASSERT_TRUE(third.ok()) << third.status().message();
  for (const auto& table : others) EXPECT_TRUE(End(table.get(), request, true).ok());
  for (const std::string& reference : {first, second, third.value()}) {
    EXPECT_TRUE(Restore(request.prefix, reference, Options(), 1, Parts()).ok());
  }
}

}  // namespace
}  // namespace sok
