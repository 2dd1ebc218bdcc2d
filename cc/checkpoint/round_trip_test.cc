// Tables are restored bit for bit, and training continues from a checkpoint with the same bits as without it.
#include <gtest/gtest.h>

#include <set>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/chain.h"
#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/saved_ranks.h"
#include "cc/checkpoint/testing/table_files.h"
#include "cc/optimizers/optimizer.h"
#include "cc/optimizers/testing/rule_cases.h"
#include "cc/table/bloom_counters.h"

namespace sok {
namespace {

const std::vector<float> kFtrl = {0.1f, -0.5f, 0.1f, 0.01f, 0.01f, 0.0f, 0.0f};

std::vector<int64_t> SomeKeys() {
  std::vector<int64_t> keys = HostileIds();
  const std::vector<int64_t> more = DistinctIds(120, 5);
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

// The count of a key in a table's Bloom filter.
int64_t BloomCountOf(EngineTable* table, int64_t key) {
  const Admission& admission = table->options().admission;
  BloomCounters counters =
      std::move(BloomCounters::Create(admission.max_element_size, admission.false_positive_probability,
                                      admission.counter_bits)
                    .value());
  TableState state;
  AddState(table, &state);
  EXPECT_TRUE(counters.MergeMax(state.bloom_blocks, state.bloom).ok());
  return counters.Count(key);
}

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

class RoundTripTest : public ::testing::Test {
 protected:
  // A number of steps; on a slow engine a third of it.
  static int Steps(int steps) { return EngineOfTests().is_slow ? (steps + 2) / 3 : steps; }
  SaveRequest Request(uint64_t n, bool delta = false) { return NthSave(n, delta, &files_); }
  static TableOptions Options(int64_t dim = 3) {
    TableOptions options;
    options.name = "scope/items";
    options.dim = dim;
    options.initializer.seed = 77;
    return options;
  }
  std::string MustSave(const Tables& tables, const SaveRequest& request) {
    auto reference = Save(tables, request);
    EXPECT_TRUE(reference.ok()) << reference.status().message();
    return reference.ok() ? reference.value() : "";
  }
  Tables MustRestore(const SaveRequest& request, const std::string& reference, const TableOptions& options,
                     int ranks) {
    auto tables = Restore(request.prefix, reference, options, ranks, Parts());
    EXPECT_TRUE(tables.ok()) << tables.status().message();
    return tables.ok() ? std::move(tables.value()) : Tables();
  }
  RestoreParts Parts() {
    RestoreParts parts;
    parts.files = &files_;
    return parts;
  }
  // Whether a checkpoint is a delta, by its manifest.
  bool IsDelta(const SaveRequest& request) {
    for (const auto& [path, bytes] : files_.AllFiles()) {
      if (path.find(request.id + ".manifest.json") != std::string::npos) {
        return bytes->find("\"kind\": \"delta\"") != std::string::npos;
      }
    }
    ADD_FAILURE() << "no manifest for " << request.prefix;
    return false;
  }

  MemoryFiles files_;
};

TEST_F(RoundTripTest, EveryOptimizerContinuesBitForBit) {
  for (const auto& [optimizer, hyper] : OneCasePerRule()) {
    SCOPED_TRACE(optimizer);
    // AnyNumberOfRanksReadsACheckpointOfAnyOther covers one rank, too.
    for (const int ranks : EngineOfTests().is_slow ? std::vector<int>{2} : std::vector<int>{1, 2}) {
      RemoveTree(files_, "/ckpt");
      std::mt19937_64 random(1);
      const Tables tables = MakeTables(Options(), ranks);
      for (int t = 0; t < Steps(12); ++t) {
        ASSERT_TRUE(TrainOnSome(tables, optimizer, hyper, SomeKeys(), 0.3, &random).ok());
      }
      const SaveRequest request = Request(ranks);
      const std::string reference = MustSave(tables, request);
      TableOptions options = Options();
      options.initializer.seed = 5;  // the restored table has the checkpoint's seed
      const Tables restored = MustRestore(request, reference, options, ranks);
      ASSERT_EQ(restored.size(), tables.size());
      EXPECT_TRUE(StateOf(restored) == StateOf(tables));
      std::mt19937_64 again = random;
      for (int t = 0; t < Steps(5); ++t) {
        ASSERT_TRUE(TrainOnSome(tables, optimizer, hyper, SomeKeys(), 0.3, &random).ok());
        ASSERT_TRUE(TrainOnSome(restored, optimizer, hyper, SomeKeys(), 0.3, &again).ok());
      }
      EXPECT_TRUE(StateOf(restored) == StateOf(tables)) << "after more steps";
    }
  }
}

TEST_F(RoundTripTest, AnyNumberOfRanksReadsACheckpointOfAnyOther) {
  std::vector<std::pair<int, int>> moves = {{1, 1}, {2, 3}, {3, 1}, {4, 2}, {2, 4}, {1, 5}};
  if (EngineOfTests().is_slow) moves.resize(3);  // the same, more and fewer
  for (const auto& [from, to] : moves) {
    SCOPED_TRACE(StrCat(from, " to ", to));
    std::mt19937_64 random(2);
    const Tables tables = MakeTables(Options(), from);
    for (int t = 0; t < Steps(8); ++t) {
      ASSERT_TRUE(TrainOnSome(tables, "adam", kAdam, SomeKeys(), 0.5, &random).ok());
    }
    const SaveRequest request = Request(10 * from + to);
    const Tables restored = MustRestore(request, MustSave(tables, request), Options(), to);
    EXPECT_TRUE(StateOf(restored) == StateOf(tables));
    for (const auto& table : restored) {
      for (const int64_t key : KeysOf(table.get())) EXPECT_EQ(OwnerByKey(key, to), table->options().rank);
    }
  }
}

TEST_F(RoundTripTest, NarrowAndOddRows) {
  for (const int64_t dim : {1, 65}) {
    std::mt19937_64 random(3);
    const Tables tables = MakeTables(Options(dim), 2);
    ASSERT_TRUE(TrainOn(tables, "ftrl", kFtrl, SomeKeys(), &random).ok());
    const SaveRequest request = Request(dim);
    EXPECT_TRUE(StateOf(MustRestore(request, MustSave(tables, request), Options(dim), 3)) == StateOf(tables));
  }
}

TEST_F(RoundTripTest, RowsOfManyBlocks) {
  std::mt19937_64 random(4);
  const Tables tables = MakeTables(Options(33), 1);
  ASSERT_TRUE(
      TrainOn(tables, "lazy_adam", kAdam, DistinctIds(EngineOfTests().is_slow ? 2000 : 20000, 9), &random)
          .ok());
  const SaveRequest request = Request(1);
  const std::string reference = MustSave(tables, request);
  EXPECT_TRUE(StateOf(MustRestore(request, reference, Options(33), 1)) == StateOf(tables));
  EXPECT_TRUE(StateOf(MustRestore(request, reference, Options(33), 3)) == StateOf(tables));
}

TEST_F(RoundTripTest, EmptyTable) {
  for (const int ranks : {1, 2}) {
    const Tables tables = MakeTables(Options(), 2);
    const SaveRequest request = Request(ranks);
    const Tables restored = MustRestore(request, MustSave(tables, request), Options(), ranks);
    EXPECT_TRUE(StateOf(restored) == StateOf(tables));
  }
}

TEST_F(RoundTripTest, TablesWithoutHashing) {
  TableOptions options = Options();
  options.use_hashtable = false;
  options.capacity = 6;
  std::mt19937_64 random(5);
  const Tables tables = MakeTables(options, 2);
  ASSERT_TRUE(TrainOn(tables, "adam", kAdam, {0, 3, 11}, &random).ok());
  ASSERT_TRUE(TrainOn(tables, "adam", kAdam, {1, 3}, &random).ok());
  const SaveRequest request = Request(1);
  const std::string reference = MustSave(tables, request);
  EXPECT_TRUE(StateOf(MustRestore(request, reference, options, 2)) == StateOf(tables));
  options.capacity = 4;
  EXPECT_TRUE(StateOf(MustRestore(request, reference, options, 3)) == StateOf(tables));
  options.capacity = 12;
  EXPECT_TRUE(StateOf(MustRestore(request, reference, options, 1)) == StateOf(tables));
  options.capacity = 11;
  const auto refused = Restore(request.prefix, reference, options, 1, Parts());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted) << refused.status().message();
  options.capacity = 5;  // two ranks: keys up to 9
  EXPECT_EQ(Restore(request.prefix, reference, options, 2, Parts()).status().code(),
            StatusCode::kResourceExhausted);
}

TEST_F(RoundTripTest, CountsAndWaitingIds) {
  TableOptions options = Options();
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 5;
  options.eviction.kind = Eviction::Kind::kGlobalStep;
  options.eviction.steps_to_live = 4;
  options.capacity = 100;
  options.on_full = OnFull::kEvictLfu;
  std::mt19937_64 random(6);
  const Tables tables = MakeTables(options, 2);
  for (int t = 0; t < 9; ++t) {
    ASSERT_TRUE(TrainOnSome(tables, "adagrad", {0.1f, 0.1f, 0.0f}, SomeKeys(), 0.3, &random).ok());
  }
  const SaveRequest request = Request(1);
  const std::string reference = MustSave(tables, request);
  const TableState state = StateOf(tables);
  EXPECT_FALSE(state.waiting.empty());
  EXPECT_FALSE(state.rows.empty());
  EXPECT_TRUE(StateOf(MustRestore(request, reference, options, 2)) == state);
  EXPECT_TRUE(StateOf(MustRestore(request, reference, options, 3)) == state);

  // A table without a filter drops waiting ids; a Bloom filter adds their counts.
  TableOptions plain = Options();
  const TableState without = StateOf(MustRestore(request, reference, plain, 2));
  EXPECT_EQ(without.rows.size(), state.rows.size());
  EXPECT_TRUE(without.waiting.empty());
  options.admission.kind = Admission::Kind::kBloom;
  options.admission.max_element_size = 1000;
  const Tables bloomed = MustRestore(request, reference, options, 3);
  for (const auto& [key, waiting] : state.waiting) {
    EXPECT_GE(BloomCountOf(bloomed[static_cast<size_t>(OwnerByKey(key, 3))].get(), key), waiting.first);
  }
}

TEST_F(RoundTripTest, CountersOfABloomFilter) {
  for (const int bits : {8, 16, 32, 64}) {
    TableOptions options = Options();
    options.admission.kind = Admission::Kind::kBloom;
    options.admission.filter_freq = 6;
    options.admission.max_element_size = 300;
    options.admission.counter_bits = bits;
    std::mt19937_64 random(7);
    const Tables tables = MakeTables(options, 2);
    for (int t = 0; t < 6; ++t) {
      ASSERT_TRUE(TrainOnSome(tables, "sgd", {0.1f}, SomeKeys(), 0.4, &random).ok());
    }
    const SaveRequest request = Request(bits);
    const std::string reference = MustSave(tables, request);
    EXPECT_TRUE(StateOf(MustRestore(request, reference, options, 2)) == StateOf(tables));
    const Tables three = MustRestore(request, reference, options, 3);
    for (const int64_t key : SomeKeys()) {
      EXPECT_GE(BloomCountOf(three[static_cast<size_t>(OwnerByKey(key, 3))].get(), key),
                BloomCountOf(tables[static_cast<size_t>(OwnerByKey(key, 2))].get(), key));
    }
  }
}

TEST_F(RoundTripTest, RowsOfATableWithoutFilterAreAdmitted) {
  std::mt19937_64 random(8);
  const Tables tables = MakeTables(Options(), 1);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {1, 2}, &random).ok());
  const SaveRequest request = Request(1);
  TableOptions options = Options();
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 9;
  const Tables restored = MustRestore(request, MustSave(tables, request), options, 1);
  ASSERT_EQ(restored.size(), 1u);
  const TableState state = StateOf(restored);
  ASSERT_EQ(state.rows.size(), 2u);
  for (const auto& [key, row] : state.rows) EXPECT_EQ(std::get<1>(row), 9) << key;
}

TEST_F(RoundTripTest, OnlyWeights) {
  std::mt19937_64 random(9);
  const Tables tables = MakeTables(Options(), 2);
  ASSERT_TRUE(TrainOn(tables, "adam", kAdam, SomeKeys(), &random).ok());
  const SaveRequest request = Request(1);
  const std::string reference = MustSave(tables, request);
  RestoreParts parts = Parts();
  parts.optimizer = false;
  parts.counts = false;
  auto restored = Restore(request.prefix, reference, Options(), 1, parts);
  ASSERT_TRUE(restored.ok());
  const TableState alone = StateOf(restored.value());
  EXPECT_EQ(alone.optimizer, "");
  EXPECT_EQ(alone.clock.first, 0);
  ASSERT_EQ(alone.rows.size(), SomeKeys().size());
  const TableState state = StateOf(tables);
  for (const auto& [key, row] : alone.rows) {
    EXPECT_EQ(std::get<0>(row)[0], std::get<0>(state.rows.at(key))[0]);
  }
  EXPECT_TRUE(TrainOn(restored.value(), "sgd", {0.1f}, {1}, &random).ok()) << "another optimizer";
}

TEST_F(RoundTripTest, RowsThatASaveEvictsAreNotSaved) {
  TableOptions options = Options();
  options.eviction.kind = Eviction::Kind::kGlobalStep;
  options.eviction.steps_to_live = 1;
  std::mt19937_64 random(10);
  const Tables tables = MakeTables(options, 1);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {1, 2}, &random).ok());
  for (int t = 0; t < 2; ++t) ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {2}, &random).ok());
  const SaveRequest request = Request(1);
  const Tables restored = MustRestore(request, MustSave(tables, request), options, 1);
  EXPECT_EQ(KeysOf(restored[0].get()), (std::vector<int64_t>{2}));
  EXPECT_EQ(KeysOf(tables[0].get()), (std::vector<int64_t>{2}));
}

TEST_F(RoundTripTest, ARenamedCheckpointIsFound) {
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

TEST_F(RoundTripTest, FoldersOfEarlierVersionsAreRead) {
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

TEST_F(RoundTripTest, ATableIsNotTakenForAnotherPrefix) {
  const Tables tables = MakeTables(Options(), 1);
  SaveRequest request = Request(1);
  request.name = "a.sok-b";
  const std::string reference = MustSave(tables, request);
  EXPECT_EQ(EndsOf(files_, "/ckpt", "model.ckpt-1.sok-a%2Esok-b-" + request.id + ".manifest").size(), 1u);
  MustRestore(request, reference, Options(), 1);
}

TEST_F(RoundTripTest, LongNamesFitIntoAFileName) {
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

TEST_F(RoundTripTest, APathServesAsReference) {
  const Tables tables = MakeTables(Options(), 1);
  const SaveRequest request = Request(1);
  MustSave(tables, request);
  const std::string folder = "/ckpt/model.ckpt-1.sok/scope%2Fitems-" + request.id;
  EXPECT_TRUE(Restore("/elsewhere/x", folder, Options(), 1, Parts()).ok());
}

TEST_F(RoundTripTest, AnotherVariableIsRefused) {
  std::mt19937_64 random(12);
  const Tables tables = MakeTables(Options(), 1);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {1, 2, 3}, &random).ok());
  const SaveRequest request = Request(1);
  const std::string reference = MustSave(tables, request);
  const auto refusal = [&](const TableOptions& options) {
    const Status status = Restore(request.prefix, reference, options, 1, Parts()).status();
    EXPECT_NE(status.message().find("'scope/items'"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("manifest.json"), std::string::npos) << status.message();
    return status.code();
  };
  EXPECT_EQ(refusal(Options(4)), StatusCode::kInvalidArgument);
  TableOptions options = Options();
  options.key_dtype = "int32";
  EXPECT_EQ(refusal(options), StatusCode::kInvalidArgument);
  options = Options();
  options.use_hashtable = false;
  options.capacity = 9;
  EXPECT_EQ(refusal(options), StatusCode::kInvalidArgument);
  options = Options();
  options.capacity = 2;
  EXPECT_EQ(refusal(options), StatusCode::kResourceExhausted);
}

TEST_F(RoundTripTest, SavesToOnePrefixDoNotChangeEachOther) {
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

TEST_F(RoundTripTest, ACheckpointMayHaveAnotherNameForTheTable) {
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

// Deltas.

TEST_F(RoundTripTest, AChainHasOneNameForItsTable) {
  std::mt19937_64 random(22);
  const Tables tables = MakeTables(Options(), 2);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, SomeKeys(), &random).ok());
  int n = 0;
  const auto save_as = [&](const std::string& name) {
    EXPECT_TRUE(TrainOnSome(tables, "sgd", {0.1f}, SomeKeys(), 0.2, &random).ok());
    SaveRequest request = Request(++n, true);
    request.name = name;
    const std::string reference = MustSave(tables, request);
    EXPECT_TRUE(StateOf(MustRestore(request, reference, Options(), 2)) == StateOf(tables)) << n;
    return IsDelta(request);
  };
  EXPECT_FALSE(save_as(""));
  EXPECT_TRUE(save_as("scope/items"));
  EXPECT_FALSE(save_as("other")) << "another name, so nothing to build on";
  EXPECT_TRUE(save_as("other"));
  EXPECT_FALSE(save_as(""));
}

TEST_F(RoundTripTest, AChainRestoresWeightsAndSlotsAndTrainingContinues) {
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
      RemoveTree(files_, "/ckpt");
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

TEST_F(RoundTripTest, AChainIsReadByAnyNumberOfRanks) {
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

TEST_F(RoundTripTest, ADeltaNeedsItsBase) {
  std::mt19937_64 random(15);
  const Tables tables = MakeTables(Options(), 1);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, SomeKeys(), &random).ok());
  MustSave(tables, Request(1, true));
  const std::string reference = MustSave(tables, Request(2, true));
  EXPECT_TRUE(IsDelta(Request(2)));
  RemoveTableFiles(files_, "/ckpt/model.ckpt-1.sok/scope%2Fitems-" + Request(1).id);
  const auto lost = Restore(Request(2).prefix, reference, Options(), 1, Parts());
  EXPECT_EQ(lost.status().code(), StatusCode::kNotFound) << lost.status().message();
  const SaveRequest request = Request(3, true);
  const std::string full = MustSave(tables, request);
  EXPECT_FALSE(IsDelta(request)) << "there is nothing to build on";
  EXPECT_TRUE(StateOf(MustRestore(request, full, Options(), 1)) == StateOf(tables));
}

TEST_F(RoundTripTest, AfterAFailureTheNextIsFull) {
  std::mt19937_64 random(16);
  const Tables tables = MakeTables(Options(), 1);
  MustSave(tables, Request(1, true));
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, SomeKeys(), &random).ok());
  SaveRequest request = Request(2, true);
  EXPECT_TRUE(End(tables[0].get(), request, false).ok());
  const std::string reference = MustSave(tables, request);
  EXPECT_FALSE(IsDelta(request));
  EXPECT_TRUE(StateOf(MustRestore(request, reference, Options(), 1)) == StateOf(tables));
}

TEST_F(RoundTripTest, ANewHyperParameterOfAdamMakesTheNextFull) {
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

TEST_F(RoundTripTest, DeltasOfTablesWithoutHashing) {
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

TEST_F(RoundTripTest, ACompactedChainIsAFullCheckpoint) {
  TableOptions options = Options();
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 4;
  std::mt19937_64 random(19);
  const Tables tables = MakeTables(options, 3);
  for (int n = 1; n <= 3; ++n) {
    for (int t = 0; t < 5; ++t) {
      ASSERT_TRUE(TrainOnSome(tables, "adam", kAdam, SomeKeys(), 0.3, &random).ok());
    }
    MustSave(tables, Request(n, true));
  }
  const SaveRequest request = Request(9);
  const auto compacted = Compact("/ckpt/model.ckpt-3.sok/scope%2Fitems-" + SaveId(3), request);
  ASSERT_TRUE(compacted.ok()) << compacted.status().message();
  EXPECT_FALSE(IsDelta(request));
  for (int n = 1; n <= 3; ++n)
    RemoveTableFiles(files_, Request(n).prefix + ".sok/scope%2Fitems-" + SaveId(n));
  for (const auto& table : tables) {
    WhileHeld(table.get(), [](HeldTable* held) { return held->SettleOptimizer(); });
  }
  EXPECT_TRUE(StateOf(MustRestore(request, compacted.value(), options, 3)) == StateOf(tables));
}

}  // namespace
}  // namespace sok
