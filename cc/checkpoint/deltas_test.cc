// Chains of deltas: what they restore, what the next save builds on, and compaction.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/testing/memory_saves.h"
#include "cc/checkpoint/testing/rewritten_checkpoint.h"
#include "cc/optimizers/testing/rule_cases.h"

namespace sok {
namespace {

// A case of every rule; on a slow engine, one for each treatment of rows without a gradient, on which saves
// depend.
std::vector<RuleCase> CasesOfSaves() {
  std::set<UntouchedRows> seen;
  std::vector<RuleCase> cases;
  for (const RuleCase& rule_case : OneCasePerRule()) {
    if (!EngineOfTests().is_slow || seen.insert(rule_case.rule().untouched).second)
      cases.push_back(rule_case);
  }
  return cases;
}

class DeltasTest : public MemorySavesTest {};

TEST_F(DeltasTest, AChainHasOneNameForItsTable) {
  std::mt19937_64 random(22);
  const Tables tables = MakeTables(Options(), 2);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, SomeKeys(), &random).ok());
  int n = 0;
  const auto save_as = [&](const std::string& name) {
    EXPECT_TRUE(TrainOnSome(tables, "sgd", {0.1f}, SomeKeys(), 0.2, &random).ok());
    const SaveRequest request = Request(++n, true);
    const std::string reference = MustSave(tables, request, name);
    EXPECT_TRUE(StateOf(MustRestore(request, reference, Options(), 2)) == StateOf(tables)) << n;
    return IsDelta(request, reference);
  };
  EXPECT_FALSE(save_as(""));
  EXPECT_TRUE(save_as("scope/items"));
  EXPECT_FALSE(save_as("other")) << "another name, so nothing to build on";
  EXPECT_TRUE(save_as("other"));
  EXPECT_FALSE(save_as(""));
}

TEST_F(DeltasTest, AChainRestoresWeightsAndSlotsAndTrainingContinues) {
  for (const auto& [optimizer, hyper] : CasesOfSaves()) {
    for (const bool filtered : {false, true}) {
      SCOPED_TRACE(StrCat(optimizer, filtered ? ", filtered" : ""));
      TableOptions options = Options();
      if (filtered) {
        options.admission.kind = Admission::Kind::kCounter;
        options.admission.filter_freq = 3;
        options.eviction.kind = Eviction::Kind::kGlobalStep;
        options.eviction.steps_to_live = 6;
      }
      files_.RemoveAll();
      std::mt19937_64 random(13);
      const Tables tables = MakeTables(options, 2);
      for (int n = 1; n <= (EngineOfTests().is_slow ? 3 : 5); ++n) {
        for (int t = 0; t < Steps(4); ++t) {
          std::vector<float> rate = hyper;
          rate[0] *= 1.0f + 0.1f * static_cast<float>(n + t);
          ASSERT_TRUE(TrainOnSome(tables, optimizer, rate, SomeKeys(), 0.1, &random).ok());
        }
        if (n == 3) {
          ASSERT_TRUE(Erase(tables[0].get(), SomeKeys()).ok());
        }
        const SaveRequest request = Request(n, true);
        const std::string reference = MustSave(tables, request);
        const bool lags_unsaved = RuleCase{optimizer, hyper}.rule().untouched == UntouchedRows::kSlotsDecay;
        EXPECT_EQ(IsDelta(request), n > 1 && !lags_unsaved);
        const Tables restored = MustRestore(request, reference, options, 2);
        ASSERT_EQ(restored.size(), 2u);
        EXPECT_TRUE(StateOf(restored) == StateOf(tables)) << "save " << n;
        std::mt19937_64 again = random;
        std::mt19937_64 copy = random;
        const Tables twin = MustRestore(request, reference, options, 2);
        for (int t = 0; t < 3; ++t) {
          ASSERT_TRUE(TrainOnSome(restored, optimizer, hyper, SomeKeys(), 0.2, &again).ok());
          ASSERT_TRUE(TrainOnSome(twin, optimizer, hyper, SomeKeys(), 0.2, &copy).ok());
        }
        EXPECT_TRUE(StateOf(restored) == StateOf(twin));
      }
      // The process that wrote the chain continues like one that read it.
      const SaveRequest request = Request(6, true);
      const Tables restored = MustRestore(request, MustSave(tables, request), options, 2);
      std::mt19937_64 again = random;
      for (int t = 0; t < 6; ++t) {
        ASSERT_TRUE(TrainOnSome(tables, optimizer, hyper, SomeKeys(), 0.2, &random).ok());
        ASSERT_TRUE(TrainOnSome(restored, optimizer, hyper, SomeKeys(), 0.2, &again).ok());
      }
      EXPECT_TRUE(StateOf(restored) == StateOf(tables));
    }
  }
}

TEST_F(DeltasTest, AChainIsReadByAnyNumberOfRanks) {
  std::mt19937_64 random(14);
  const Tables tables = MakeTables(Options(), 3);
  std::string reference;
  for (int n = 1; n <= 4; ++n) {
    for (int t = 0; t < 3; ++t) {
      ASSERT_TRUE(TrainOnSome(tables, "adam", kAdam, SomeKeys(), 0.2, &random).ok());
    }
    std::vector<int64_t> keys = KeysOf(tables[1].get());
    keys.resize(3);
    ASSERT_TRUE(Erase(tables[1].get(), keys).ok());
    reference = MustSave(tables, Request(n, true));
  }
  for (const int ranks : {1, 2, 3, 6}) {
    EXPECT_TRUE(StateOf(MustRestore(Request(4), reference, Options(), ranks)) == StateOf(tables)) << ranks;
  }
  // A restore of only weights includes the steps that the rows have missed.
  RestoreParts parts = Parts();
  parts.optimizer = false;
  auto weights = Restore(Request(4).prefix, reference, Options(), 2, parts);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  for (const auto& table : tables) BringUpToDate(table.get());
  const TableState state = StateOf(tables);
  const TableState alone = StateOf(weights.value());
  ASSERT_EQ(alone.rows.size(), state.rows.size());
  for (const auto& [key, row] : alone.rows) {
    const std::vector<float>& whole = std::get<0>(state.rows.at(key));
    EXPECT_EQ(std::get<0>(row), std::vector<float>(whole.begin(), whole.begin() + 3));
  }
}

TEST_F(DeltasTest, ADeltaNeedsItsBase) {
  std::mt19937_64 random(15);
  const Tables tables = MakeTables(Options(), 1);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, SomeKeys(), &random).ok());
  MustSave(tables, Request(1, true));
  const std::string reference = MustSave(tables, Request(2, true));
  EXPECT_TRUE(IsDelta(Request(2)));
  RemoveCheckpoint(files_, Request(1).prefix);
  const auto lost = Restore(Request(2).prefix, reference, Options(), 1, Parts());
  EXPECT_EQ(lost.status().code(), StatusCode::kNotFound) << lost.status().message();
  const SaveRequest request = Request(3, true);
  const std::string full = MustSave(tables, request);
  EXPECT_FALSE(IsDelta(request)) << "there is nothing to build on";
  EXPECT_TRUE(StateOf(MustRestore(request, full, Options(), 1)) == StateOf(tables));
}

TEST_F(DeltasTest, ABaseThatTensorFlowRemovedServesOnlyDeltas) {
  std::mt19937_64 random(15);
  const Tables tables = MakeTables(Options(), 1);
  std::string name;
  for (int n = 1; n <= 3; ++n) {
    ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {n}, &random).ok());
    name = MustSave(tables, Request(n, true));
    EXPECT_EQ(IsDelta(Request(n)), n > 1);
    ASSERT_TRUE(files_.Rename(IndexPath(Request(n).prefix), RetiredIndexPath(Request(n).prefix)).ok());
    EXPECT_EQ(Restore(Request(n).prefix, name, Options(), 1, Parts()).status().code(), StatusCode::kNotFound);
  }
  ASSERT_TRUE(files_.Rename(RetiredIndexPath(Request(3).prefix), IndexPath(Request(3).prefix)).ok());
  EXPECT_TRUE(StateOf(MustRestore(Request(3), name, Options(), 1)) == StateOf(tables));
}

TEST_F(DeltasTest, ABaseThatWasSavedAgainStillServesItsDeltas) {
  std::mt19937_64 random(15);
  const Tables tables = MakeTables(Options(), 1);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {1, 2}, &random).ok());
  MustSave(tables, Request(1, true));
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {2}, &random).ok());
  const std::string name = MustSave(tables, Request(2, true));
  const TableState state = StateOf(tables);
  SaveRequest again = Request(1);
  again.id = SaveId(7);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {3}, &random).ok());
  MustSave(tables, again);
  EXPECT_TRUE(StateOf(MustRestore(Request(2), name, Options(), 1)) == state);
  EXPECT_TRUE(StateOf(MustRestore(again, name, Options(), 1)) == StateOf(tables));
}

TEST_F(DeltasTest, AfterAFailureTheNextIsFull) {
  std::mt19937_64 random(16);
  const Tables tables = MakeTables(Options(), 1);
  MustSave(tables, Request(1, true));
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, SomeKeys(), &random).ok());
  SaveRequest request = Request(2, true);
  EXPECT_TRUE(End(tables[0].get(), request, false).ok());
  const std::string reference = MustSave(tables, request);
  EXPECT_FALSE(IsDelta(request));
  EXPECT_TRUE(StateOf(MustRestore(request, reference, Options(), 1)) == StateOf(tables));
  // The table is published, and what comes after it fails.
  request = Request(3, true);
  ASSERT_TRUE(Begin(tables[0].get(), request).ok());
  ASSERT_TRUE(Write(tables[0].get(), request).ok());
  ASSERT_TRUE(CommitCheckpoint(request, 1, /*with_others=*/false).ok());
  EXPECT_TRUE(End(tables[0].get(), request, false).ok());
  MustSave(tables, Request(4, true));
  EXPECT_FALSE(IsDelta(Request(4)));
}

TEST_F(DeltasTest, ARankThatMissedACheckpointDoesNotAddToItsChain) {
  std::mt19937_64 random(23);
  const Tables tables = MakeTables(Options(), 2);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, SomeKeys(), &random).ok());
  MustSave(tables, Request(1, true));
  // Rank 1 is not told that the second save has ended, and its chain still ends at the first.
  const SaveRequest missed = Request(2, true);
  for (const auto& table : tables) ASSERT_TRUE(Begin(table.get(), missed).ok());
  for (const auto& table : tables) ASSERT_TRUE(Write(table.get(), missed).ok());
  ASSERT_TRUE(CommitCheckpoint(missed, 2, /*with_others=*/false).ok());
  ASSERT_TRUE(End(tables[0].get(), missed, true).ok());
  const SaveRequest next = Request(3, true);
  for (const auto& table : tables) ASSERT_TRUE(Begin(table.get(), next).ok());
  EXPECT_TRUE(Write(tables[0].get(), next).ok());
  const Status status = Write(tables[1].get(), next);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("rank 1 does not track changes since"), std::string::npos)
      << status.message();
}

TEST_F(DeltasTest, ANewHyperParameterOfAdamMakesTheNextFull) {
  std::mt19937_64 random(17);
  const Tables tables = MakeTables(Options(), 1);
  ASSERT_TRUE(TrainOn(tables, "adam", kAdam, SomeKeys(), &random).ok());
  MustSave(tables, Request(1, true));
  ASSERT_TRUE(TrainOn(tables, "adam", {0.01f, 0.8f, 0.999f, 1e-8f}, {1}, &random).ok());
  ASSERT_TRUE(TrainOn(tables, "adam", kAdam, {2}, &random).ok());
  const SaveRequest request = Request(2, true);
  const std::string reference = MustSave(tables, request);
  EXPECT_FALSE(IsDelta(request));
  EXPECT_TRUE(StateOf(MustRestore(request, reference, Options(), 1)) == StateOf(tables));
}

// Servers take steps while they save: here one takes the first step of all, and the other does not.
TEST_F(DeltasTest, AServerMayHaveTakenNoStepYet) {
  for (const auto& [optimizer, hyper] : CasesOfSaves()) {
    for (const int trained : {0, 1}) {
      for (const bool delta : {false, true}) {
        SCOPED_TRACE(StrCat(optimizer, " on rank ", trained, delta ? ", a delta" : ""));
        files_.RemoveAll();
        std::mt19937_64 random(13);
        const Tables tables = MakeTables(Options(), 2);
        std::vector<int64_t> keys[2];
        for (const int64_t key : SomeKeys()) keys[static_cast<uint64_t>(key) % 2].push_back(key);
        for (const int rank : {0, 1}) {
          WhileHeld(tables[rank].get(), [&](HeldTable* held) {
            return held->FillRows(keys[rank], RowParts(), [](const RowsToFill& rows) {
              for (float* const record : rows.records) std::fill_n(record, 3, 0.25f);
              return OkStatus();
            });
          });
        }
        SaveRequest first = Request(1, true);
        SaveRequest request = Request(2, true);
        first.apart = request.apart = true;
        if (delta) MustSave(tables, first);
        for (const auto& table : tables) ASSERT_TRUE(Begin(table.get(), request).ok());
        const std::vector<float> grads(keys[trained].size() * 3, 0.5f);
        ASSERT_TRUE(TrainOneRank(tables[trained].get(), optimizer, hyper, keys[trained], grads).ok());
        for (const auto& table : tables) ASSERT_TRUE(Write(table.get(), request).ok());
        ASSERT_TRUE(CommitCheckpoint(request, 2, /*with_others=*/false).ok());
        EXPECT_EQ(IsDelta(request), delta);
        // The other takes a step without gradients of its own.
        ASSERT_TRUE(TrainOneRank(tables[1 - trained].get(), optimizer, hyper, {}, {}).ok());
        for (const auto& table : tables) {
          WhileHeld(table.get(), [](HeldTable* held) { return held->SettleOptimizer(); });
        }
        const std::string name = Options().name;
        const TableState expected = StateOf(tables);
        for (const int ranks : {1, 2, 3}) {
          const Tables restored = MustRestore(request, name, Options(), ranks);
          ASSERT_EQ(restored.size(), static_cast<size_t>(ranks));
          EXPECT_TRUE(StateOf(restored) == expected) << ranks;
        }
        const SaveRequest compacted = Request(3);
        EXPECT_TRUE(Compact(request.prefix, compacted).ok());
        EXPECT_TRUE(StateOf(MustRestore(compacted, name, Options(), 2)) == expected);
      }
    }
  }
}

TEST_F(DeltasTest, DeltasOfTablesWithoutHashing) {
  TableOptions options = Options();
  options.use_hashtable = false;
  options.capacity = 20;
  std::mt19937_64 random(18);
  const Tables tables = MakeTables(options, 2);
  std::string reference;
  for (int n = 1; n <= 3; ++n) {
    ASSERT_TRUE(TrainOn(tables, "adam", kAdam, {n, 2 * n, 30}, &random).ok());
    reference = MustSave(tables, Request(n, true));
    EXPECT_EQ(IsDelta(Request(n)), n > 1);
  }
  EXPECT_TRUE(StateOf(MustRestore(Request(3), reference, options, 2)) == StateOf(tables));
}

TEST_F(DeltasTest, TablesWithoutOptimizersFollowAChain) {
  for (const bool hashed : {true, false}) {
    SCOPED_TRACE(hashed);
    TableOptions options = Options();
    if (hashed) {
      options.admission.kind = Admission::Kind::kCounter;
      options.admission.filter_freq = 3;
    } else {
      options.use_hashtable = false;
      options.capacity = 100;
    }
    const std::vector<int64_t> keys = hashed ? SomeKeys() : std::vector<int64_t>{1, 2, 3, 30, 50, 99};
    files_.RemoveAll();
    std::mt19937_64 random(31);
    const Tables tables = MakeTables(options, 2);
    RestoreParts parts = Parts();
    parts.optimizer = false;
    std::string reference;
    std::vector<Tables> followers;  // on 1, 2 and 3 ranks, which load each save, and on 2, which miss one
    for (int n = 1; n <= 4; ++n) {
      ASSERT_TRUE(TrainOnSome(tables, "lazy_adam", kAdam, keys, 0.4, &random).ok());
      ASSERT_TRUE(TrainOnSome(tables, "lazy_adam", kAdam, keys, 0.4, &random).ok());
      if (n == 3 && hashed) {
        ASSERT_TRUE(Erase(tables[0].get(), keys).ok());
      }
      const SaveRequest request = Request(n, true);
      reference = MustSave(tables, request);
      for (const size_t f : {size_t{0}, size_t{1}, size_t{2}, size_t{3}}) {
        // Without hashing, the capacity of a rank and the number of ranks say which keys there are.
        const int ranks = f == 3 || !hashed ? 2 : static_cast<int>(f) + 1;
        if (n == 1) {
          RestoreParts of_follower = parts;
          of_follower.map_weights = f == 1;
          followers.push_back(Restore(request.prefix, reference, options, ranks, of_follower).value());
          continue;
        }
        if (f == 3 && n == 2) continue;
        const std::string since = SaveId(static_cast<uint64_t>(f == 3 && n == 3 ? 1 : n - 1));
        const Status followed = Follow(files_, request.prefix, reference, since, followers[f]);
        ASSERT_TRUE(followed.ok()) << followed.message();
        const Tables restored = Restore(request.prefix, reference, options, ranks, parts).value();
        EXPECT_TRUE(StateOf(followers[f]) == StateOf(restored)) << "save " << n << ", follower " << f;
      }
    }
    const Status unknown = Follow(files_, Request(4).prefix, reference, SaveId(77), followers[0]);
    EXPECT_EQ(unknown.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(unknown.message().find("does not build on the save 0000000000000077"), std::string::npos)
        << unknown.message();
  }
}

TEST_F(DeltasTest, NothingFollowsAnIncrementOfExactAdam) {
  std::mt19937_64 random(32);
  const Tables tables = MakeTables(Options(), 1);
  std::string reference;
  for (int n = 1; n <= 2; ++n) {
    ASSERT_TRUE(TrainOnSome(tables, "adam", kAdam, SomeKeys(), 0.5, &random).ok());
    reference = MustSave(tables, Request(n, true));
  }
  RestoreParts parts = Parts();
  parts.optimizer = false;
  const Tables first = Restore(Request(1).prefix, reference, Options(), 1, parts).value();
  const Status followed = Follow(files_, Request(2).prefix, reference, SaveId(1), first);
  EXPECT_EQ(followed.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(followed.message().find("exact Adam, which moves every row"), std::string::npos)
      << followed.message();
}

TEST_F(DeltasTest, ACompactedChainIsAFullCheckpoint) {
  TableOptions options = Options();
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 4;
  options.initializer = Initializer(InitializerKind::kGiven, 0.0f, 0.0f, 0, /*rows=*/3);
  for (int64_t i = 0; i < 3 * options.dim; ++i) options.initial_rows.push_back(0.25f * static_cast<float>(i));
  std::mt19937_64 random(19);
  const Tables tables = MakeTables(options, 3);
  for (int n = 1; n <= 3; ++n) {
    for (int t = 0; t < 5; ++t) {
      ASSERT_TRUE(TrainOnSome(tables, "adam", kAdam, SomeKeys(), 0.3, &random).ok());
    }
    MustSave(tables, Request(n, true));
  }
  const SaveRequest request = Request(9);
  const Status compacted = Compact(Request(3).prefix, request);
  ASSERT_TRUE(compacted.ok()) << compacted.message();
  EXPECT_FALSE(IsDelta(request));
  for (int n = 1; n <= 3; ++n) RemoveCheckpoint(files_, Request(n).prefix);
  for (const auto& table : tables) {
    WhileHeld(table.get(), [](HeldTable* held) { return held->SettleOptimizer(); });
  }
  EXPECT_TRUE(StateOf(MustRestore(request, Options().name, options, 3)) == StateOf(tables));
  const std::vector<float> initial_rows = options.initial_rows;
  options.initial_rows.clear();
  EXPECT_EQ(MustRestore(request, options.name, options, 3)[0]->options().initial_rows, initial_rows);
}

}  // namespace
}  // namespace sok
