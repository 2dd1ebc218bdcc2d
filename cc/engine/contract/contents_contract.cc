// EngineTable::Hold: reads and writes of rows, as for checkpoints, exports and raw files.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/suites.h"
#include "cc/engine/held_table.h"
#include "cc/table/bloom_filter.h"

namespace sok {
namespace {

SOK_CONTRACT_SUITE(ContentsContract);

constexpr int64_t kDim = 2;

TableOptions Options() { return ContractOptions("clicks", kDim); }

std::unique_ptr<HeldTable> Hold(ContractGroup& group) {
  return std::move(group.table(0).Hold(group.context()).value());
}

// Gives keys[i] the row {i, -i}.
Status Assign(ContractGroup& group, const std::vector<int64_t>& keys) {
  std::vector<float> values;
  for (size_t i = 0; i < keys.size(); ++i) {
    values.push_back(static_cast<float>(i));
    values.push_back(-static_cast<float>(i));
  }
  return group.Assign(0, keys, values);
}

// The blocks that ReadBloom visits.
struct CountersOfBlocks {
  std::vector<int64_t> blocks;
  std::vector<char> bytes;

  bool operator==(const CountersOfBlocks& other) const {
    return blocks == other.blocks && bytes == other.bytes;
  }
};

CountersOfBlocks CountersOf(HeldTable* table) {
  CountersOfBlocks all;
  const Status status = table->ReadBloom([&](Span<const int64_t> blocks, Span<const char> bytes) {
    all.blocks.insert(all.blocks.end(), blocks.begin(), blocks.end());
    all.bytes.insert(all.bytes.end(), bytes.begin(), bytes.end());
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return all;
}

std::vector<int64_t> KeysIn(HeldTable* table, RowSet set, int64_t limit = INT64_MAX) {
  RowsToRead what;
  what.set = set;
  what.limit = limit;
  std::vector<int64_t> keys;
  const Status status = table->ReadRows(what, [&](const RowPiece& piece) {
    keys.insert(keys.end(), piece.keys.begin(), piece.keys.end());
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return keys;
}

TEST_P(ContentsContract, RowsComeInTheOrderOfTheirNumbersInBoundedPieces) {
  // More than fit one piece, except for the slowest engines.
  const int64_t rows = GetParam().is_slowest ? 3000 : GetParam().is_slow ? 66000 : 100000;
  std::vector<int64_t> keys(static_cast<size_t>(rows));
  std::iota(keys.rbegin(), keys.rend(), -3);
  InlineExecutor executor;
  ContractGroup table(GetParam(), executor, {Options()});
  ASSERT_TRUE(Assign(table, keys).ok());
  const auto held = Hold(table);
  int64_t next = 0;
  const Status status = held->ReadRows(RowsToRead(), [&](const RowPiece& piece) {
    EXPECT_LE(piece.keys.size(), 1 << 16);
    EXPECT_EQ(piece.records.size(), piece.keys.size());
    EXPECT_TRUE(piece.frequency.empty() && piece.last_step.empty() && piece.last_current.empty());
    for (int64_t i = 0; i < piece.keys.size(); ++i, ++next) {
      EXPECT_EQ(piece.numbers[i], next);
      EXPECT_EQ(piece.keys[i], keys[static_cast<size_t>(next)]);
      EXPECT_EQ(piece.records[i][0], static_cast<float>(next));
      EXPECT_EQ(piece.records[i][1], -static_cast<float>(next));
    }
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(next, rows);
  EXPECT_EQ(held->CountRows(RowSet::kAll).value(), rows);
  const int64_t some = rows / 5 * 3;
  EXPECT_EQ(KeysIn(held.get(), RowSet::kAll, some), std::vector<int64_t>(keys.begin(), keys.begin() + some));
}

TEST_P(ContentsContract, AnErrorOfAVisitEndsTheRead) {
  InlineExecutor executor;
  ContractGroup table(GetParam(), executor, {Options()});
  ASSERT_TRUE(Assign(table, std::vector<int64_t>({1, 2})).ok());
  const Status status = Hold(table)->ReadRows(RowsToRead(), [](const RowPiece&) { return DataLoss("full"); });
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
}

TEST_P(ContentsContract, FilledRowsAreReadBack) {
  TableOptions options = Options();
  options.capacity = 10;
  options.on_full = OnFull::kEvictLfu;
  options.eviction.kind = Eviction::Kind::kGlobalStep;
  options.eviction.steps_to_live = 100;
  InlineExecutor executor;
  ContractGroup table(GetParam(), executor, {options});
  const auto held = Hold(table);
  ASSERT_TRUE(held->RestoreOptimizer({"adam", 5, {0.01f, 0.9f, 0.999f, 1e-8f}}).ok());
  ASSERT_TRUE(held->RestorePastSteps({0.9f, 0.999f, 1e-8f, 4, {0.01f}}).ok());
  ASSERT_TRUE(held->RestoreClock({7, 8, true}).ok());
  const RowParts parts = held->state().parts;
  EXPECT_TRUE(parts.slots && parts.frequency && parts.last_step && parts.last_used && parts.last_current);
  const std::vector<int64_t> keys = {5, -6, INT64_MAX};
  const auto fill = [&](const RowsToFill& rows) {
    for (int64_t i = 0; i < rows.records.size(); ++i) {
      std::iota(rows.records[i], rows.records[i] + 3 * kDim, static_cast<float>(10 * i));
      rows.frequency[i] = 20 + i;
      rows.last_step[i] = 30 + i;
      rows.last_used[i] = 40 + i;
      rows.last_current[i] = 4 + i % 2;
    }
    return OkStatus();
  };
  ASSERT_TRUE(held->FillRows(keys, parts, fill).ok());
  RowsToRead what;
  what.parts = parts;
  const Status status = held->ReadRows(what, [&](const RowPiece& piece) {
    EXPECT_EQ(std::vector<int64_t>(piece.keys.begin(), piece.keys.end()), keys);
    for (int64_t i = 0; i < piece.keys.size(); ++i) {
      for (int64_t c = 0; c < 3 * kDim; ++c) EXPECT_EQ(piece.records[i][c], static_cast<float>(10 * i + c));
      EXPECT_EQ(
          std::make_tuple(piece.frequency[i], piece.last_step[i], piece.last_used[i], piece.last_current[i]),
          std::make_tuple(20 + i, 30 + i, 40 + i, 4 + i % 2));
    }
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  const HeldState state = held->state();
  EXPECT_EQ(state.rows, 3);
  EXPECT_EQ(state.clock.steps, 7);
  EXPECT_EQ(state.clock.uses, 8);
  EXPECT_TRUE(state.clock.counts_global_steps);
  EXPECT_EQ(state.optimizer->name, "adam");
  EXPECT_EQ(state.optimizer->steps, 5);
  PastSteps past;
  ASSERT_TRUE(held->ReadPastSteps(&past).ok());
  EXPECT_EQ(past.first_step, 4);
  EXPECT_EQ(past.alphas, std::vector<float>({0.01f}));
}

// Engines that make room in advance need no memory piece by piece.
TEST_P(ContentsContract, RoomThatIsMadeIsThatOfTheRows) {
  constexpr int64_t kRows = 5000;
  InlineExecutor executor;
  ContractGroup table(GetParam(), executor, {Options()});
  ASSERT_TRUE(Hold(table)->MakeRoom(kRows).ok());
  EXPECT_EQ(table.table(0).Describe().rows, 0);
  const int64_t room = table.table(0).Describe().bytes;
  std::vector<int64_t> keys(kRows);
  std::iota(keys.begin(), keys.end(), -7);
  for (int64_t first = 0; first < kRows; first += 1000) {
    const auto some = Span<const int64_t>(keys).subspan(first, 1000);
    const auto fill = [](const RowsToFill& rows) {
      for (float* const record : rows.records) std::fill_n(record, kDim, 1.0f);
      return OkStatus();
    };
    ASSERT_TRUE(Hold(table)->FillRows(some, RowParts(), fill).ok());
  }
  EXPECT_EQ(table.table(0).Describe().rows, kRows);
  const int64_t bytes = table.table(0).Describe().bytes;
  const bool has_rows_only = bytes == kRows * kDim * static_cast<int64_t>(sizeof(float));
  const bool has_disk = table.table(0).options().tiers.has_disk();  // Rows get memory when they are used.
  EXPECT_TRUE(bytes == room || has_rows_only || has_disk) << bytes << " and " << room;
}

TEST_P(ContentsContract, KeysBeyondTheCapacityInsertNothing) {
  TableOptions options = Options();
  options.capacity = 2;
  InlineExecutor executor;
  ContractGroup table(GetParam(), executor, {options});
  const auto held = Hold(table);
  bool called = false;
  const Status status = held->FillRows(std::vector<int64_t>({1, 2, 3}), RowParts(), [&](const RowsToFill&) {
    called = true;
    return OkStatus();
  });
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(called);
  EXPECT_EQ(held->state().rows, 0);
}

TEST_P(ContentsContract, ChangesCountFromTheLastSaveThatSucceeded) {
  InlineExecutor executor;
  ContractGroup table(GetParam(), executor, {Options()});
  ASSERT_TRUE(Assign(table, {1, 2, 3}).ok());
  ASSERT_TRUE(Hold(table)->TrackChanges().ok());
  ASSERT_TRUE(Hold(table)->BeginSave().ok());
  Hold(table)->EndSave(true, ChainEnd{"/full", "7"});
  ASSERT_TRUE(Assign(table, {2, 4}).ok());
  int64_t erased = 0;
  ASSERT_TRUE(table.Erase(0, {3}, &erased).ok());
  const auto held = Hold(table);
  EXPECT_EQ(held->state().chain_end.prefix, "/full");
  EXPECT_EQ(held->CountRows(RowSet::kChanged).value(), 2);
  EXPECT_EQ(KeysIn(held.get(), RowSet::kChanged), (std::vector<int64_t>{2, 4}));
  std::vector<int64_t> keys;
  ASSERT_TRUE(held->ErasedKeys(&keys).ok());
  EXPECT_EQ(keys, (std::vector<int64_t>{3}));
  ASSERT_TRUE(held->BeginSave().ok());
  held->EndSave(false, ChainEnd());
  EXPECT_EQ(KeysIn(held.get(), RowSet::kChanged), (std::vector<int64_t>{2, 4})) << "after a failed save";
  ASSERT_TRUE(held->ErasedKeys(&keys).ok());
  EXPECT_EQ(keys, (std::vector<int64_t>{3})) << "after a failed save";
  EXPECT_EQ(held->state().chain_end.prefix, "");
  ASSERT_TRUE(held->BeginSave().ok());
  held->EndSave(true, ChainEnd{"/full", "8"});
  EXPECT_EQ(held->CountRows(RowSet::kChanged).value(), 0);
  ASSERT_TRUE(held->ErasedKeys(&keys).ok());
  EXPECT_EQ(keys, (std::vector<int64_t>{})) << "they are saved";
}

// Training continues while a save writes: what changes then belongs to the next save, whether or not this one
// succeeds.
TEST_P(ContentsContract, ChangesDuringASaveBelongToTheNextOne) {
  for (const bool ok : {true, false}) {
    SCOPED_TRACE(ok);
    InlineExecutor executor;
    ContractGroup table(GetParam(), executor, {Options()});
    ASSERT_TRUE(Hold(table)->TrackChanges().ok());
    ASSERT_TRUE(Assign(table, {1, 2, 3, 4, 5}).ok());
    int64_t erased = 0;
    ASSERT_TRUE(table.Erase(0, {1}, &erased).ok());
    ASSERT_TRUE(Hold(table)->BeginSave().ok());
    ASSERT_TRUE(Assign(table, {2}).ok());
    ASSERT_TRUE(table.Erase(0, {3}, &erased).ok());
    ASSERT_TRUE(Assign(table, {6}).ok());  // in the row of 3
    Hold(table)->EndSave(ok, ChainEnd{"/chain", "1"});
    const auto held = Hold(table);
    std::vector<int64_t> keys = KeysIn(held.get(), RowSet::kChanged);
    std::sort(keys.begin(), keys.end());
    EXPECT_EQ(keys, ok ? (std::vector<int64_t>{2, 6}) : (std::vector<int64_t>{2, 4, 5, 6}));
    ASSERT_TRUE(held->ErasedKeys(&keys).ok());
    EXPECT_EQ(keys, ok ? (std::vector<int64_t>{3}) : (std::vector<int64_t>{1, 3}));
  }
}

// The same for ids that wait for admission.
TEST_P(ContentsContract, AFailedSaveLosesNoChangesOfWaitingIds) {
  TableOptions options = Options();
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 4;
  InlineExecutor executor;
  ContractGroup table(GetParam(), executor, {options});
  const auto held = Hold(table);
  ASSERT_TRUE(held->TrackChanges().ok());
  const auto changed = [&] {
    std::vector<int64_t> ids;
    EXPECT_TRUE(held->ReadWaiting(RowSet::kChanged,
                                  [&](const WaitingPiece& piece) {
                                    ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
                                    return OkStatus();
                                  })
                    .ok());
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  const auto erased = [&] {
    std::vector<int64_t> ids;
    EXPECT_TRUE(held->ErasedWaiting(&ids).ok());
    return ids;
  };
  const std::vector<int64_t> ids = {8, -9, 7};
  const std::vector<int64_t> numbers = {1, 2, 3};
  ASSERT_TRUE(held->SetWaiting({ids, numbers, numbers}).ok());
  ASSERT_TRUE(held->EraseWaiting(std::vector<int64_t>({8})).ok());
  for (const bool ok : {false, true}) {
    EXPECT_EQ(changed(), (std::vector<int64_t>{-9, 7}));
    EXPECT_EQ(erased(), (std::vector<int64_t>{8}));
    ASSERT_TRUE(held->BeginSave().ok());
    held->EndSave(ok, ChainEnd());
  }
  EXPECT_EQ(changed(), (std::vector<int64_t>{}));
  EXPECT_EQ(erased(), (std::vector<int64_t>{}));
}

TEST_P(ContentsContract, WaitingIdsAndCountersAreReadBack) {
  const std::vector<int64_t> ids = {8, -9};
  const std::vector<int64_t> counts = {2, 3};
  const std::vector<int64_t> last_steps = {5, 6};
  TableOptions options = Options();
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 4;
  InlineExecutor executor;
  ContractGroup table(GetParam(), executor, {options});
  const auto held = Hold(table);
  ASSERT_TRUE(held->SetWaiting({ids, counts, last_steps}).ok());
  EXPECT_EQ(held->CountWaiting(RowSet::kAll).value(), 2);
  ASSERT_TRUE(held->EraseWaiting(std::vector<int64_t>({8, 100})).ok());
  std::map<int64_t, std::pair<int64_t, int64_t>> waiting;
  const Status read = held->ReadWaiting(RowSet::kAll, [&](const WaitingPiece& piece) {
    for (int64_t i = 0; i < piece.ids.size(); ++i)
      waiting[piece.ids[i]] = {piece.counts[i], piece.last_steps[i]};
    return OkStatus();
  });
  EXPECT_TRUE(read.ok());
  EXPECT_EQ(waiting, (std::map<int64_t, std::pair<int64_t, int64_t>>{{-9, {3, 6}}}));

  options.admission.kind = Admission::Kind::kBloom;
  options.admission.max_element_size = 100;
  options.admission.counter_bits = 8;
  ContractGroup bloomed(GetParam(), executor, {options});
  ContractGroup other(GetParam(), executor, {options});
  const auto from = Hold(bloomed);
  const auto into = Hold(other);
  ASSERT_TRUE(from->SetWaiting({ids, counts, last_steps}).ok());
  const CountersOfBlocks counters = CountersOf(from.get());
  EXPECT_EQ(*std::max_element(counters.bytes.begin(), counters.bytes.end()), 3);
  EXPECT_TRUE(std::is_sorted(counters.blocks.begin(), counters.blocks.end()));
  ASSERT_TRUE(into->MergeBloom(counters.blocks, counters.bytes).ok());
  EXPECT_TRUE(CountersOf(into.get()) == counters);
  // 1010 counters fill 15 blocks and a part of the sixteenth, whose end has no counters.
  const std::vector<int64_t> last = {BloomShape::BlocksOf(1010, 8) - 1};
  ASSERT_TRUE(into->MergeBloom(last, std::vector<char>(kBloomBlockBytes, 9)).ok());
  const CountersOfBlocks merged = CountersOf(into.get());
  EXPECT_EQ(std::count(merged.bytes.begin(), merged.bytes.end(), 9), 1010 % kBloomBlockBytes);
  for (const int64_t outside : {int64_t{-1}, last[0] + 1}) {
    const Status status = into->MergeBloom({&outside, 1}, std::vector<char>(kBloomBlockBytes, 1));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(std::to_string(outside)), std::string::npos) << status.message();
  }
  EXPECT_FALSE(into->MergeBloom(last, std::vector<char>(kBloomBlockBytes - 1, 1)).ok());
  EXPECT_TRUE(CountersOf(into.get()) == merged);
}

TEST_P(ContentsContract, OtherCallsWaitUntilItIsDestroyed) {
  InlineExecutor executor;
  ContractGroup table(GetParam(), executor, {Options()});
  ASSERT_TRUE(Assign(table, {1}).ok());
  auto held = Hold(table);
  std::thread other([&] { EXPECT_TRUE(Assign(table, {2, 3}).ok()); });
  for (int i = 0; i < (GetParam().is_slow ? 10 : 100); ++i)
    EXPECT_EQ(KeysIn(held.get(), RowSet::kAll), std::vector<int64_t>({1}));
  held.reset();
  other.join();
  EXPECT_EQ(table.table(0).Describe().rows, 3);
}

}  // namespace
}  // namespace sok
