#include "cc/checkpoint/table_replacement.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/saved_ranks.h"

namespace sok {
namespace {

constexpr char kPrefix[] = "/model.ckpt-1";

// The checkpoint has two tables, "a" and "b". Each of their arrays of floats has several blocks.
class TableReplacementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.dim = EngineOfTests().is_slow ? 256 : 32;
    options_.initializer.seed = 5;
    options_.eviction.kind = Eviction::Kind::kGlobalStep;
    options_.eviction.steps_to_live = 1000;
    saved_ = MakeTrained(1);
    SaveRequest request;
    request.prefix = kPrefix;
    request.id = SaveId(1);
    request.files = &files_;
    InlineExecutor executor;
    const EngineContext context = ContextOn(executor);
    const std::vector<TableToSave> tables = {{saved_[0].get(), {}}, {saved_[1].get(), {}}};
    MustBeOk(BeginCheckpoint(context, tables, request));
    MustBeOk(WriteCheckpointPart(context, tables, request));
    MustBeOk(CommitCheckpoint(request, 1, /*with_others=*/false));
  }

  // Tables of different seeds have different keys and numbers of rows.
  Tables MakeTrained(uint64_t seed) {
    Tables tables;
    for (const char* name : {"a", "b"}) {
      options_.name = name;
      tables.push_back(MakeTables(options_, 1)[0]);
      std::mt19937_64 random(seed);
      const int64_t rows = (EngineOfTests().is_slow ? 2500 : 10000) + static_cast<int64_t>(seed);
      EXPECT_TRUE(TrainOn({tables.back()}, "lazy_adam", kAdam, DistinctIds(rows, seed), &random).ok());
    }
    return tables;
  }

  // Restores both tables, as an op does: loads all of them, and then replaces those in *tables.
  Status Restore(Files& files, Tables* tables) {
    InlineExecutor executor;
    OpenedCheckpoints opened(files);
    std::vector<TableReplacement> replacements;
    for (const auto& table : *tables) {
      SOK_ASSIGN_OR_RETURN(auto replacement,
                           TableReplacement::Load(ContextOn(executor), table.get(), opened, kPrefix,
                                                  table->options().name, RestoreParts()));
      replacements.push_back(std::move(replacement));
    }
    for (size_t i = 0; i < replacements.size(); ++i) (*tables)[i] = std::move(replacements[i].table);
    return OkStatus();
  }

  MemoryFiles files_;
  TableOptions options_;
  Tables saved_;
};

TEST_F(TableReplacementTest, TheTablesAreThoseOfTheCheckpoint) {
  Tables tables = MakeTrained(2);
  ASSERT_TRUE(Restore(files_, &tables).ok());
  for (size_t i = 0; i < tables.size(); ++i) {
    EXPECT_TRUE(StateOf({tables[i]}) == StateOf({saved_[i]}));
    EXPECT_EQ(KeysOf(tables[i].get()), KeysOf(saved_[i].get())) << "in the order of the rows";
  }
}

// The first and the last byte of each array of the last table: those of its last block are read last.
TEST_F(TableReplacementTest, DamageLeavesAllTablesAsTheyWere) {
  Tables tables = MakeTrained(2);
  const Tables before = tables;
  const std::vector<TableState> states = {StateOf({tables[0]}), StateOf({tables[1]})};
  const auto checkpoint = SavedCheckpoint::Open(files_, kPrefix).value();
  int damaged = 0;
  for (const char* array : {"keys", "values", "slot-m", "slot-v", "last_step"}) {
    const TensorPlace place = checkpoint->Find(ArrayEntry("b", 0, array)).value();
    std::string& file = *files_.AllFiles().at(checkpoint->DataFile(place.shard));
    for (const int64_t at : {place.offset, place.offset + place.bytes - 1}) {
      file[static_cast<size_t>(at)] ^= 1;
      const Status status = Restore(files_, &tables);
      file[static_cast<size_t>(at)] ^= 1;
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << array;
      EXPECT_NE(status.message().find(ArrayEntry("b", 0, array)), std::string::npos) << status.message();
      EXPECT_TRUE(tables == before);
      ++damaged;
    }
  }
  for (size_t i = 0; i < tables.size(); ++i) EXPECT_TRUE(StateOf({tables[i]}) == states[i]);
  EXPECT_EQ(damaged, 10);
  EXPECT_TRUE(Restore(files_, &tables).ok());
}

TEST_F(TableReplacementTest, AnyReadThatFailsLeavesAllTablesAsTheyWere) {
  Tables tables = MakeTrained(2);
  const Tables before = tables;
  const std::vector<TableState> states = {StateOf({tables[0]}), StateOf({tables[1]})};
  FailingFiles counting(&files_, -1, FailingFiles::Mode::kFailsOneRead);
  Tables restored = tables;
  ASSERT_TRUE(Restore(counting, &restored).ok());
  const int64_t reads = counting.operations();
  EXPECT_GT(reads, 16);
  for (int64_t k = 0; k < reads; k += EngineOfTests().is_slow ? 7 : 1) {
    FailingFiles failing(&files_, k, FailingFiles::Mode::kFailsOneRead);
    const Status status = Restore(failing, &tables);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << k << " of " << reads << ": " << status.message();
    EXPECT_TRUE(tables == before);
  }
  for (size_t i = 0; i < tables.size(); ++i) EXPECT_TRUE(StateOf({tables[i]}) == states[i]);
}

// A restore reads every block of the files once.
TEST_F(TableReplacementTest, FilesAreReadOnce) {
  const auto checkpoint = SavedCheckpoint::Open(files_, kPrefix).value();
  int64_t blocks = 0;
  for (const auto& [name, entry] : checkpoint->index().entries) {
    const TensorPlace place = checkpoint->Find(name).value();
    if (place.dtype != kStringDtype) blocks += BlocksOf(place.bytes);
  }
  FailingFiles counting(&files_, -1, FailingFiles::Mode::kFailsOneRead);
  Tables tables = MakeTrained(2);
  ASSERT_TRUE(Restore(counting, &tables).ok());
  FailingFiles of_facts(&files_, -1, FailingFiles::Mode::kFailsOneRead);
  OpenedCheckpoints opened(of_facts);
  for (const auto& table : tables) {
    ASSERT_TRUE(
        TableRestore::Open(opened, kPrefix, table->options().name, table->options(), RestoreParts()).ok());
  }
  EXPECT_EQ(counting.operations() - of_facts.operations(), blocks);
}

TEST_F(TableReplacementTest, ChangesAreTrackedAsBefore) {
  for (const bool tracked : {false, true}) {
    Tables tables = MakeTrained(2);
    if (tracked) {
      WhileHeld(tables[0].get(), [](HeldTable* held) { return held->TrackChanges(); });
    }
    ASSERT_TRUE(Restore(files_, &tables).ok());
    WhileHeld(tables[0].get(), [&](HeldTable* held) {
      EXPECT_EQ(held->state().tracks_changes, tracked);
      return OkStatus();
    });
  }
}

}  // namespace
}  // namespace sok
