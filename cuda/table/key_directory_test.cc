// Keys, rows and references of a group of tables equal those of cc/cpu/table/row_directory.h after every
// call.
#include "cuda/table/key_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/cpu/table/row_directory.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/base/testing/limited_allocator.h"
#include "cuda/table/directory_rows.h"

namespace sok {
namespace {

using Ids = std::vector<int64_t>;

// Distinct ids of each table of a group, on the device.
class DeviceIds {
 public:
  explicit DeviceIds(const std::vector<Ids>& tables)
      : begins_(Begins(tables)),
        begin_(begins_),
        keys_(Joined(tables)),
        rows_(Ids(Joined(tables).size(), -9)) {}

  static Ids Begins(const std::vector<Ids>& tables) {
    Ids begins = {0};
    for (const Ids& ids : tables) begins.push_back(begins.back() + static_cast<int64_t>(ids.size()));
    return begins;
  }
  static Ids Joined(const std::vector<Ids>& tables) {
    Ids all;
    for (const Ids& ids : tables) all.insert(all.end(), ids.begin(), ids.end());
    // The host only knows an upper bound of the number of ids.
    all.insert(all.end(), 3, 4711);
    return all;
  }

  IdsOfGroup ids() {
    return {static_cast<int>(begins_.size()) - 1, begin_.data(), keys_.data(), begins_.back() + 3};
  }
  int64_t* rows() { return rows_.data(); }
  int64_t count() const { return begins_.back(); }
  // rows()[u] of the ids of each table.
  std::vector<Ids> FetchRows() const {
    const Ids all = rows_.Fetch();
    std::vector<Ids> rows;
    for (size_t t = 0; t + 1 < begins_.size(); ++t) {
      rows.emplace_back(all.begin() + begins_[t], all.begin() + begins_[t + 1]);
    }
    return rows;
  }

 private:
  Ids begins_;
  DeviceArray<int64_t> begin_;
  DeviceArray<int64_t> keys_;
  DeviceArray<int64_t> rows_;
};

class KeyDirectoryTest : public testing::Test {
 protected:
  void MakeTables(int tables) {
    for (int t = 0; t < tables; ++t) directories_.emplace_back(&allocator_);
    expected_.resize(tables);
  }

  DeviceArray<KeyIndexView> Indexes() const {
    std::vector<KeyIndexView> views;
    for (const KeyDirectory& directory : directories_) views.push_back(directory.view().index);
    return DeviceArray<KeyIndexView>(views);
  }
  void Find(DeviceIds* ids) {
    GroupKeys keys;
    DeviceArray<KeyIndexView> views = Indexes();
    keys.tables = ids->ids().tables;
    keys.views = views.data();
    keys.begin = ids->ids().begin;
    keys.max_keys = ids->ids().max;
    keys.keys = ids->ids().keys;
    ASSERT_TRUE(FindKeys(nullptr, keys, ids->rows()).ok());
    ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }

  // Gives rows to those of `tables`' ids that have none, and compares rows and references.
  void LookUp(const std::vector<Ids>& tables) {
    DeviceIds ids(tables);
    Find(&ids);
    const Ids new_begin = GiveAbsent(&ids);
    std::vector<Ids> expected_new(tables.size());
    std::vector<Ids> expected_rows;
    for (size_t t = 0; t < tables.size(); ++t)
      expected_rows.push_back(Expected(t, tables[t], &expected_new[t]));
    EXPECT_EQ(new_begin, DeviceIds::Begins(expected_new));
    EXPECT_EQ(ids.FetchRows(), expected_rows);
    ExpectReferences(tables, &ids);
    for (size_t t = 0; t < tables.size(); ++t) ExpectSizes(t);
  }

  // Returns where each table's new ids begin.
  Ids GiveAbsent(DeviceIds* ids) {
    const int tables = ids->ids().tables;
    DeviceArray<int64_t> begin(Ids(tables + 1, -1));
    DeviceArray<int32_t> which(std::vector<int32_t>(ids->ids().max, -1));
    EXPECT_TRUE(ListAbsent(nullptr, &allocator_, ids->ids(), ids->rows(), {begin.data(), which.data()}).ok());
    const Ids begins = begin.Fetch();
    const int64_t count = begins.back();
    std::vector<RowSource> sources;
    for (int t = 0; t < tables; ++t) {
      const int64_t n = begins[t + 1] - begins[t];
      KeyDirectory& directory = directories_[t];
      EXPECT_TRUE(directory.Reserve(nullptr, directory.size() + n, directory.RowLimitWith(n)).ok());
      sources.push_back(SourceOf(directory));
      directory.CountGiven(n);
    }
    DeviceArray<RowSource> device_sources(sources);
    DeviceArray<KeyIndexView> indexes = Indexes();
    DeviceArray<int64_t> keys(Ids(count, -1));
    DeviceArray<int64_t> rows(Ids(count, -1));
    const NewRows new_rows = {tables, device_sources.data(), indexes.data(), begin.data(),
                              count,  keys.data(),           rows.data()};
    EXPECT_TRUE(CollectKeys(nullptr, ids->ids(), which.data(), new_rows).ok());
    EXPECT_TRUE(GiveRows(nullptr, new_rows).ok());
    EXPECT_TRUE(SpreadRows(nullptr, new_rows, which.data(), ids->rows()).ok());
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    return begins;
  }

  // The rows that the ids have on the host, where those without a row get one.
  Ids Expected(size_t t, const Ids& ids, Ids* new_ids) {
    RowDirectory& directory = expected_[t];
    Ids rows(ids.size());
    directory.Find(ids, Span<int64_t>(rows));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (rows[i] == RowDirectory::kAbsent) new_ids->push_back(ids[i]);
    }
    const auto n = static_cast<int64_t>(new_ids->size());
    EXPECT_TRUE(directory.Reserve(directory.size() + n, directory.RowLimitWith(n)).ok());
    Ids new_rows(new_ids->size());
    directory.NextRows(Span<int64_t>(new_rows));
    EXPECT_TRUE(directory.Insert(*new_ids, new_rows).ok());
    directory.Find(ids, Span<int64_t>(rows));
    return rows;
  }

  void ExpectReferences(const std::vector<Ids>& tables, DeviceIds* ids) {
    std::vector<ColumnView<uint32_t>> states;
    for (const KeyDirectory& directory : directories_) {
      states.push_back(directory.has_erased() ? directory.view().states : ColumnView<uint32_t>());
    }
    DeviceArray<ColumnView<uint32_t>> device_states(states);
    ASSERT_TRUE(MakeReferences(nullptr, ids->ids(), device_states.data(), ids->rows()).ok());
    std::vector<Ids> references = ids->FetchRows();
    for (size_t t = 0; t < tables.size(); ++t) {
      Ids expected(tables[t].size());
      expected_[t].Find(tables[t], Span<int64_t>(expected));
      for (int64_t& row : expected) row = expected_[t].Reference(row);
      EXPECT_EQ(references[t], expected);
      references_.insert(references_.end(), references[t].begin(), references[t].end());
    }
  }

  void ExpectSizes(size_t t) {
    EXPECT_EQ(directories_[t].size(), expected_[t].size());
    EXPECT_EQ(directories_[t].row_limit(), expected_[t].row_limit());
    EXPECT_EQ(directories_[t].has_erased(), expected_[t].has_erased());
  }

  // Erases keys, which may repeat or be absent, from both.
  void Erase(size_t t, const Ids& keys) {
    Ids rows(keys.size());
    expected_[t].Find(keys, Span<int64_t>(rows));
    const std::set<int64_t> distinct(rows.begin(), rows.end());
    Ids expected_rows;
    Ids expected_keys;
    for (const int64_t row : distinct) {
      if (row == RowDirectory::kAbsent) continue;
      expected_rows.push_back(row);
      expected_keys.push_back(expected_[t].id(row));
    }
    ASSERT_TRUE(expected_[t].PrepareErase(static_cast<int64_t>(expected_rows.size())).ok());
    for (const int64_t row : expected_rows) expected_[t].Erase(row);
    EXPECT_EQ(EraseOnDevice(t, keys), std::make_pair(expected_rows, expected_keys));
    ExpectSizes(t);
  }

  // The erased rows, and their keys.
  std::pair<Ids, Ids> EraseOnDevice(size_t t, const Ids& keys) {
    KeyDirectory& directory = directories_[t];
    const auto n = static_cast<int64_t>(keys.size());
    DeviceArray<int64_t> device_keys(keys);
    DeviceArray<int64_t> rows(Ids(n, -9));
    DeviceArray<int64_t> distinct(Ids(n, -9));
    DeviceArray<int64_t> count(Ids(1, -9));
    EXPECT_TRUE(FindKeys(nullptr, directory.view().index, device_keys.data(), n, rows.data()).ok());
    EXPECT_TRUE(SortDistinctRows(nullptr, &allocator_, rows.data(), n, directory.row_limit(), distinct.data(),
                                 count.data())
                    .ok());
    const int64_t erased = count.Fetch()[0];
    EXPECT_TRUE(directory.ReserveErase(nullptr, erased).ok());
    DeviceArray<int64_t> erased_keys(Ids(erased, -9));
    EXPECT_TRUE(EraseRows(nullptr, directory, distinct.data(), erased, erased_keys.data()).ok());
    directory.CountErased(nullptr, erased);
    Ids erased_rows = distinct.Fetch();
    erased_rows.resize(erased);
    return {erased_rows, erased_keys.Fetch()};
  }

  // The device's result for references to rows of table `t`: rows, the first unknown and the first stale.
  struct Resolved {
    Ids rows;
    int64_t first_unknown;
    int64_t first_stale;
  };
  Resolved Resolve(size_t t, const Ids& references, bool may_be_absent) {
    const auto n = static_cast<int64_t>(references.size());
    DeviceArray<int64_t> device_references(references);
    DeviceArray<int64_t> rows(Ids(n, -9));
    DeviceArray<uint64_t> first(std::vector<uint64_t>(2, static_cast<uint64_t>(n)));
    ReferencedRows referenced;
    referenced.references = device_references.data();
    referenced.n = n;
    referenced.row_limit = directories_[t].row_limit();
    referenced.states = directories_[t].has_erased() ? directories_[t].view().states : ColumnView<uint32_t>();
    referenced.rows = rows.data();
    referenced.first_unknown = first.data();
    referenced.first_stale = first.data() + 1;
    referenced.may_be_absent = may_be_absent;
    EXPECT_TRUE(ResolveReferences(nullptr, referenced).ok());
    const std::vector<uint64_t> firsts = first.Fetch();
    return {rows.Fetch(), static_cast<int64_t>(firsts[0]), static_cast<int64_t>(firsts[1])};
  }

  // Compares all references of lookups so far with the host's result for each.
  void ExpectResolved(size_t t) {
    Ids references = references_;
    for (const int64_t odd : {int64_t{-1}, int64_t{-2}, INT64_MAX, INT64_MIN, int64_t{1} << 40}) {
      references.push_back(odd);
    }
    for (const bool may_be_absent : {false, true}) {
      Ids rows;
      int64_t unknown = static_cast<int64_t>(references.size());
      int64_t stale = unknown;
      const RowDirectory& directory = expected_[t];
      for (size_t i = 0; i < references.size(); ++i) {
        const int64_t reference = references[i];
        const int64_t row = directory.has_erased() && reference >= 0 ? RowOf(reference) : reference;
        const bool known = row < directory.row_limit() && row >= (may_be_absent ? -1 : 0);
        const bool current = known && row >= 0 && (!directory.has_erased() || directory.IsCurrent(reference));
        if (!known) unknown = std::min(unknown, static_cast<int64_t>(i));
        if (known && row >= 0 && !current) stale = std::min(stale, static_cast<int64_t>(i));
        rows.push_back(current ? row : -1);
      }
      const Resolved resolved = Resolve(t, references, may_be_absent);
      EXPECT_EQ(resolved.rows, rows);
      EXPECT_EQ(resolved.first_unknown, unknown);
      EXPECT_EQ(resolved.first_stale, stale);
    }
  }

  AsyncAllocator allocator_;
  std::vector<KeyDirectory> directories_;
  std::vector<RowDirectory> expected_;
  Ids references_;
};

Ids Some(const Ids& pool, size_t most, std::mt19937_64* random) {
  Ids ids = pool;
  std::shuffle(ids.begin(), ids.end(), *random);
  ids.resize(std::min(ids.size(), static_cast<size_t>((*random)() % (most + 1))));
  return ids;
}

TEST_F(KeyDirectoryTest, RandomCallsEqualTheHosts) {
  std::mt19937_64 random(7);
  MakeTables(4);
  std::vector<Ids> pools;
  for (uint64_t t = 0; t < 3; ++t) {
    pools.push_back(sok::DistinctIds(t == 2 ? 20 : 60, t + 1));
    for (const int64_t id : HostileIds()) pools.back().push_back(id);
  }
  pools.emplace_back();  // a table that is never looked up
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    std::vector<Ids> lookup;
    for (const Ids& pool : pools) lookup.push_back(Some(pool, round % 5 == 0 ? 200 : 30, &random));
    LookUp(lookup);
    // Table 1 frees no row at first.
    for (const size_t t : {0, 1, 2}) {
      if (t == 1 && round < 8) continue;
      Ids keys = Some(pools[t], 40, &random);
      if (!keys.empty()) keys.push_back(keys.front());
      keys.push_back(1000 + round);
      Erase(t, keys);
    }
    if (round != 11) continue;
    for (const size_t t : {0, 1, 2, 3}) ExpectResolved(t);
  }
}

TEST_F(KeyDirectoryTest, RowsAreGivenLastFreedFirstAndThenInOrder) {
  MakeTables(1);
  LookUp({{10, 11, 12, 13, 14}});
  Erase(0, {13, 10});
  LookUp({{20, 14, 21, 22}});
  DeviceIds ids({{20, 21, 22, 10}});
  Find(&ids);
  EXPECT_EQ(ids.FetchRows()[0], (Ids{3, 0, 5, -1}));
}

TEST_F(KeyDirectoryTest, ManyKeysAtOnce) {
  MakeTables(2);
  const Ids first = sok::DistinctIds(5000, 3);
  const Ids second = sok::DistinctIds(1025, 4);
  LookUp({first, second});
  Erase(0, Ids(first.begin() + 100, first.begin() + 4100));
  LookUp({second, first});
}

TEST_F(KeyDirectoryTest, WithoutMemoryNothingChanges) {
  LimitedAllocator few;
  KeyDirectory directory(&few);
  ASSERT_TRUE(directory.Reserve(nullptr, 10, 10).ok());
  for (int pieces = 0; pieces < 3; ++pieces) {
    few.allocations_left = pieces;
    EXPECT_EQ(directory.Reserve(nullptr, 100000 << pieces, 100000 << pieces).code(),
              StatusCode::kResourceExhausted);
    EXPECT_EQ(directory.size(), 0);
  }
  few.allocations_left = 0;
  EXPECT_EQ(directory.ReserveErase(nullptr, 1000).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(directory.Reserve(nullptr, 10, kMaxRows + 1).code(), StatusCode::kResourceExhausted);
  few.allocations_left = 1 << 20;
  ASSERT_TRUE(directory.Reserve(nullptr, 1000, 1000).ok());
  directory.CountGiven(1000);
  EXPECT_EQ(directory.row_limit(), 1000);
}

}  // namespace
}  // namespace sok
