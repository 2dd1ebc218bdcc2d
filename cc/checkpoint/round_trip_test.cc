// Tables are restored bit for bit, on any number of ranks, and training continues from a checkpoint with the
// same bits as without it. deltas_test.cc tests chains.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/testing/memory_saves.h"
#include "cc/cpu/table/bloom_counters.h"
#include "cc/optimizers/testing/rule_cases.h"

namespace sok {
namespace {

const std::vector<float> kFtrl = {0.1f, -0.5f, 0.1f, 0.01f, 0.01f, 0.0f, 0.0f};

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

class RoundTripTest : public MemorySavesTest {};

TEST_F(RoundTripTest, EveryOptimizerContinuesBitForBit) {
  for (const auto& [optimizer, hyper] : OneCasePerRule()) {
    SCOPED_TRACE(optimizer);
    // AnyNumberOfRanksReadsACheckpointOfAnyOther covers one rank, too.
    for (const int ranks : EngineOfTests().is_slow ? std::vector<int>{2} : std::vector<int>{1, 2}) {
      files_.RemoveAll();
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

TEST_F(RoundTripTest, AnotherVariableIsRefused) {
  std::mt19937_64 random(12);
  const Tables tables = MakeTables(Options(), 1);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {1, 2, 3}, &random).ok());
  const SaveRequest request = Request(1);
  const std::string reference = MustSave(tables, request);
  const auto refusal = [&](const TableOptions& options) {
    const Status status = Restore(request.prefix, reference, options, 1, Parts()).status();
    EXPECT_NE(status.message().find("'scope/items'"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("model.ckpt-1.index"), std::string::npos) << status.message();
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

}  // namespace
}  // namespace sok
