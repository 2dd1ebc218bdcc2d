// Symbolic links in the folder that a checkpoint owns, which came with a foreign checkpoint or from another
// user of a shared directory: nothing behind them is read, written or removed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cc/checkpoint/files.h"
#include "cc/checkpoint/testing/saved_ranks.h"
#include "cc/checkpoint/testing/table_files.h"

namespace sok {
namespace {

namespace fs = std::filesystem;

class LinksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        (fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name())
            .string();
    fs::remove_all(folder_);
    victim_ = folder_ + "/victim";
    fs::create_directories(victim_ + "/deeper");
    std::ofstream(victim_ + "/precious") << "bytes";
    std::ofstream(victim_ + "/deeper/precious") << "bytes";
    options_.name = "t";
    options_.dim = 2;
    tables_ = MakeTables(options_, 1);
    EXPECT_TRUE(TrainOn(tables_, "sgd", {0.1f}, {1, 2, 3}, &random_).ok());
  }

  SaveRequest Request(int n, const std::string& directory) const {
    SaveRequest request;
    request.prefix = directory + "/m-" + std::to_string(n);
    request.id = SaveId(static_cast<uint64_t>(n));
    request.delta = true;
    return request;
  }
  SaveRequest Request(int n) const { return Request(n, folder_); }
  // The path of the saved table.
  std::string TableAt(int n) const {
    return Request(n).prefix + ".sok/t-" + SaveId(static_cast<uint64_t>(n));
  }
  // What the names of its files begin with.
  std::string FilesAt(int n) const {
    return Request(n).prefix + ".sok-t-" + SaveId(static_cast<uint64_t>(n)) + ".";
  }
  // Makes the saved table one of an earlier version, in a folder.
  void MoveIntoOldFolder(int n) {
    MoveIntoFolder(files_, folder_, StrCat("m-", n), "t-" + SaveId(static_cast<uint64_t>(n)));
  }

  void ExpectVictimUnharmed() {
    for (const std::string& path : {victim_ + "/precious", victim_ + "/deeper/precious"}) {
      std::string bytes;
      std::ifstream(path) >> bytes;
      EXPECT_EQ(bytes, "bytes") << path;
    }
    int entries = 0;
    for (const auto& entry : fs::recursive_directory_iterator(victim_)) entries += entry.exists() ? 1 : 0;
    EXPECT_EQ(entries, 3) << "something was made in it";
  }
  void ExpectRefused(const Status& status, const std::string& link) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.message();
    EXPECT_NE(status.message().find("'" + link + "' is a symbolic link"), std::string::npos)
        << status.message();
    ExpectVictimUnharmed();
  }

  Files& files_ = PosixFiles();
  std::string folder_;
  std::string victim_;
  TableOptions options_;
  Tables tables_;
  std::mt19937_64 random_{1};
};

TEST_F(LinksTest, RemovingATreeRemovesLinksAndNotTheirTargets) {
  const std::string tree = folder_ + "/tree";
  fs::create_directories(tree + "/a/b");
  fs::create_symlink(victim_, tree + "/link");
  fs::create_symlink(victim_ + "/precious", tree + "/a/file");
  fs::create_symlink("nowhere", tree + "/a/b/dangling");
  RemoveTree(files_, tree);
  EXPECT_FALSE(fs::exists(fs::symlink_status(tree)));
  fs::create_directory_symlink(victim_, tree);
  RemoveTree(files_, tree);
  EXPECT_FALSE(fs::exists(fs::symlink_status(tree)));
  ExpectVictimUnharmed();
}

TEST_F(LinksTest, NothingIsDoneThroughALinkInAnOwnedFolder) {
  const std::string own = folder_ + "/m.sok";
  fs::create_directories(own);
  for (const std::string& link : {own + "/link", folder_ + "/n.sok"}) {
    fs::create_directory_symlink(victim_, link);
    std::vector<std::string> names;
    ExpectRefused(files_.MakeFolder(link), link);
    ExpectRefused(files_.MakeFolder(link + "/new"), link);
    ExpectRefused(files_.Create(link + "/new").status(), link);
    ExpectRefused(files_.Open(link + "/precious").status(), link);
    ExpectRefused(files_.SyncFolder(link), link);
    ExpectRefused(files_.List(link, &names), link);
    ExpectRefused(files_.List(link + "/deeper", &names), link);
    ExpectRefused(files_.Remove(link + "/precious"), link);
    ExpectRefused(files_.Rename(link + "/precious", own + "/stolen"), link);
    ExpectRefused(files_.Rename(own, link + "/m"), link);
    EXPECT_FALSE(files_.IsFolder(link));
    EXPECT_FALSE(files_.IsFolder(link + "/deeper"));
  }
}

TEST_F(LinksTest, NoFileIsWrittenOrReadThroughALinkOfItsName) {
  const std::string link = folder_ + "/file";
  fs::create_symlink(victim_ + "/precious", link);
  ExpectRefused(files_.Create(link).status(), link);
  ExpectRefused(files_.Open(link).status(), link);
}

TEST_F(LinksTest, AHardLinkIsNotWrittenTo) {
  fs::create_hard_link(victim_ + "/precious", folder_ + "/file");
  EXPECT_FALSE(files_.Create(folder_ + "/file").ok());
  ExpectVictimUnharmed();
}

TEST_F(LinksTest, ASaveIsRefusedIfALinkIsWhereAnOldFolderMayBe) {
  const std::string link = folder_ + "/m-1.sok";
  fs::create_directory_symlink(victim_, link);
  const auto saved = Save(tables_, Request(1));
  ExpectRefused(saved.status(), link);
  EXPECT_TRUE(fs::is_symlink(link));
}

TEST_F(LinksTest, ASaveIsRefusedIfALinkHasTheNameOfAFile) {
  for (const std::string& target : {victim_ + "/precious", folder_ + "/nowhere"}) {
    const std::string link = FilesAt(1) + "shard-00000.keys.npy";
    fs::create_symlink(target, link);
    ExpectRefused(Save(tables_, Request(1)).status(), link);
    EXPECT_FALSE(fs::exists(folder_ + "/nowhere"));
    EXPECT_FALSE(fs::is_symlink(link)) << "an abandoned save removes what has its id";
  }
}

TEST_F(LinksTest, ASaveDoesNotChangeTheTargetsOfLinksInAnOldFolder) {
  const std::string own = folder_ + "/m-1.sok";
  fs::create_directories(own + "/t-00000000000000aa.unfinished/shard-00000");
  fs::create_directory_symlink(victim_, own + "/t-0123456789abcdef.unfinished");
  fs::create_directory_symlink(victim_, own + "/t-0123456789abcdef");
  fs::create_directory_symlink(victim_, own + "/t-00000000000000aa.unfinished/shard-00000/link");
  ASSERT_TRUE(Save(tables_, Request(1)).ok());
  ExpectVictimUnharmed();
}

TEST_F(LinksTest, AnAbandonedSaveRemovesLinksAndNotTheirTargets) {
  ASSERT_TRUE(Begin(tables_[0].get(), Request(1)).ok());
  fs::create_directory_symlink(victim_, FilesAt(1) + "shard-00000.values.npy");
  ExpectRefused(Write(tables_[0].get(), Request(1)), FilesAt(1) + "shard-00000.values.npy");
  AbandonTableCheckpoint(tables_[0]->options(), Request(1));
  EXPECT_TRUE(End(tables_[0].get(), Request(1), false).ok());
  EXPECT_TRUE(EndsOf(files_, folder_, "m-1").empty());
  ExpectVictimUnharmed();
}

TEST_F(LinksTest, TheUsersDirectoryMayBeALink) {
  fs::create_directory(folder_ + "/disk");
  fs::create_directory_symlink(folder_ + "/disk", folder_ + "/ckpt");
  const SaveRequest request = Request(1, folder_ + "/ckpt");
  const auto saved = Save(tables_, request);
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  EXPECT_TRUE(fs::exists(folder_ + "/disk/m-1.sok-t-" + SaveId(1) + ".manifest.json"));
  const auto restored = Restore(request.prefix, saved.value(), options_, 1, RestoreParts());
  ASSERT_TRUE(restored.ok()) << restored.status().message();
  EXPECT_TRUE(StateOf(restored.value()) == StateOf(tables_));
}

// Moves the file or folder at `path` to `elsewhere`, and puts a link to it at `path`.
void ReplaceByLink(const std::string& path, const std::string& elsewhere) {
  fs::rename(path, elsewhere);
  fs::create_symlink(elsewhere, path);
}

TEST_F(LinksTest, ARestoreFollowsNoLink) {
  const auto saved = Save(tables_, Request(1));
  ASSERT_TRUE(saved.ok());
  const auto expect_refused = [&](const std::string& path) {
    ReplaceByLink(path, folder_ + "/elsewhere");
    ExpectRefused(Restore(Request(1).prefix, saved.value(), options_, 1, RestoreParts()).status(), path);
    fs::remove(path);
    fs::rename(folder_ + "/elsewhere", path);
  };
  for (const char* file : {"manifest.json", "shard-00000.values.npy"}) expect_refused(FilesAt(1) + file);
  MoveIntoOldFolder(1);
  const std::string shard = TableAt(1) + "/shard-00000";
  for (const std::string& path : {Request(1).prefix + ".sok", TableAt(1), TableAt(1) + "/manifest.json",
                                  shard, shard + "/values.npy"}) {
    expect_refused(path);
  }
  EXPECT_TRUE(Restore(Request(1).prefix, saved.value(), options_, 1, RestoreParts()).ok());
}

TEST_F(LinksTest, AChainFollowsNoLink) {
  ASSERT_TRUE(Save(tables_, Request(1)).ok());
  ASSERT_TRUE(TrainOn(tables_, "sgd", {0.1f}, {2}, &random_).ok());
  const auto delta = Save(tables_, Request(2));
  ASSERT_TRUE(delta.ok());
  MoveIntoOldFolder(1);
  const std::string first = Request(1).prefix + ".sok";
  ReplaceByLink(first, folder_ + "/elsewhere");
  ExpectRefused(Restore(Request(2).prefix, delta.value(), options_, 1, RestoreParts()).status(), first);
  SaveRequest full = Request(9);
  full.delta = false;
  ExpectRefused(Compact(TableAt(2), full).status(), first);
  // So the next incremental checkpoint has nothing to build on.
  const auto next = Save(tables_, Request(3));
  ASSERT_TRUE(next.ok());
  fs::remove(first);
  const auto restored = Restore(Request(3).prefix, next.value(), options_, 1, RestoreParts());
  ASSERT_TRUE(restored.ok()) << restored.status().message();
  EXPECT_TRUE(StateOf(restored.value()) == StateOf(tables_));
}

TEST_F(LinksTest, CompactionFollowsNoLink) {
  ASSERT_TRUE(Save(tables_, Request(1)).ok());
  const std::string link = folder_ + "/m-2.sok";
  fs::create_directory_symlink(victim_, link);
  SaveRequest full = Request(2);
  full.delta = false;
  ExpectRefused(Compact(TableAt(1), full).status(), link);
}

}  // namespace
}  // namespace sok
