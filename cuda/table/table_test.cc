// The changes of a table equal those of cc/table/row_changes.h after every call.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cc/base/hash.h"
#include "cc/initializers/initializer.h"
#include "cc/table/row_changes.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/store/device_row_store.h"
#include "cuda/store/row_pieces.h"
#include "cuda/table/device_row_changes.h"
#include "cuda/table/device_table.h"
#include "cuda/table/insert_rows.h"
#include "cuda/table/key_directory.h"

namespace sok {
namespace {

constexpr int64_t kRows = 100;

class DeviceRowChangesTest : public testing::Test {
 protected:
  void Start() {
    ASSERT_TRUE(on_host_.Start(kRows).ok());
    ASSERT_TRUE(on_device_.Start(nullptr, kRows).ok());
  }
  void MarkChanged(const std::vector<int64_t>& rows) {
    for (const int64_t row : rows) {
      if (row >= 0) on_host_.MarkChanged(row);
    }
    DeviceArray<int64_t> array(rows);
    ASSERT_TRUE(on_device_.MarkChanged(nullptr, array.data(), static_cast<int64_t>(rows.size())).ok());
  }
  void MarkErased(int64_t row, int64_t key) {
    ASSERT_TRUE(on_host_.Reserve(kRows, 1).ok());
    ASSERT_TRUE(on_device_.Reserve(nullptr, kRows, 1).ok());
    on_host_.MarkErased(row, key);
    DeviceArray<int64_t> rows({row});
    DeviceArray<int64_t> keys({key});
    ASSERT_TRUE(on_device_.MarkErased(nullptr, rows.data(), keys.data(), 1).ok());
  }
  void BeginSave() {
    on_host_.BeginSave();
    ASSERT_TRUE(on_device_.BeginSave(nullptr).ok());
  }
  void EndSave(bool ok) {
    on_host_.EndSave(ok);
    ASSERT_TRUE(on_device_.EndSave(nullptr, ok).ok());
  }

  void ExpectSame() {
    // A word more than there are rows for.
    constexpr int64_t kWords = (kRows + 31) / 32 + 1;
    DeviceArray<uint32_t> words(std::vector<uint32_t>(kWords, 0xdeadbeef));
    ASSERT_TRUE(on_device_.WriteChanged(nullptr, 0, kWords, words.data()).ok());
    std::vector<uint32_t> expected(kWords, 0);
    for (int64_t row = 0; row < kRows; ++row) {
      if (on_host_.changed(row)) expected[row / 32] |= 1u << (row % 32);
    }
    ASSERT_EQ(words.Fetch(), expected);
    std::vector<int64_t> erased = {77};
    ASSERT_TRUE(on_device_.FetchErased(nullptr, &erased).ok());
    ASSERT_EQ(erased, on_host_.erased());
  }

  AsyncAllocator allocator_;
  RowChanges on_host_;
  DeviceRowChanges on_device_{&allocator_};
};

TEST_F(DeviceRowChangesTest, AFailedSaveLosesNothing) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(MarkChanged({1, 40, -1}));
  ASSERT_NO_FATAL_FAILURE(MarkErased(7, 70));
  BeginSave();
  ASSERT_NO_FATAL_FAILURE(ExpectSame());
  ASSERT_NO_FATAL_FAILURE(MarkChanged({2}));
  ASSERT_NO_FATAL_FAILURE(MarkErased(1, 10));
  EndSave(false);
  ASSERT_NO_FATAL_FAILURE(ExpectSame());
  ASSERT_EQ(on_host_.erased(), (std::vector<int64_t>{10, 70}));
  BeginSave();
  ASSERT_NO_FATAL_FAILURE(MarkChanged({9}));
  EndSave(true);
  ASSERT_NO_FATAL_FAILURE(ExpectSame());
}

TEST_F(DeviceRowChangesTest, RandomStreamsEqualTheHosts) {
  std::mt19937_64 random(3);
  ASSERT_NO_FATAL_FAILURE(Start());
  bool saves = false;
  for (int round = 0; round < 150; ++round) {
    const auto row = static_cast<int64_t>(random() % kRows);
    const uint64_t what = random() % 100;
    if (what < 40) {
      ASSERT_NO_FATAL_FAILURE(MarkChanged({row, static_cast<int64_t>(random() % kRows)}));
    } else if (what < 75) {
      ASSERT_NO_FATAL_FAILURE(MarkErased(row, row % 37 - 18));
    } else if (!saves) {
      BeginSave();
      saves = true;
    } else {
      EndSave(random() % 2 == 0);
      saves = false;
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSame());
  }
}

class StreamOrderTest : public testing::Test {
 protected:
  void SetUp() override { Restart(); }

  void Restart() {
    for (auto& stream : streams_) stream = std::make_unique<DeviceStream>();
    calls_ = 0;
    value_ = std::make_unique<DeviceArray<char>>(std::vector<char>{0});
    copies_ = std::make_unique<DeviceArray<char>>(std::vector<char>(kMost, 99));
    order_ = std::make_unique<StreamOrder>();
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // the arrays are written on the null stream
  }

  // A call on a stream: copies the value, then increases it.
  void Call(int stream) {
    const cudaStream_t on = streams_[stream]->get();
    ASSERT_TRUE(order_->Enter(on).ok());
    ASSERT_EQ(cudaMemcpyAsync(copies_->data() + calls_, value_->data(), 1, cudaMemcpyDeviceToDevice, on),
              cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(value_->data(), ++calls_, 1, on), cudaSuccess);
    order_->Leave(on);
    EXPECT_EQ(order_->last_stream(), on);
  }

  static constexpr int kMost = 6;
  std::unique_ptr<DeviceStream> streams_[3];
  std::unique_ptr<DeviceArray<char>> value_, copies_;
  std::unique_ptr<StreamOrder> order_;
  int calls_ = 0;
};

// Whichever streams the calls have, each sees what the one before left.
TEST_F(StreamOrderTest, EachCallComesAfterTheOneBefore) {
  for (const std::vector<int>& streams : std::vector<std::vector<int>>{
           {0, 1}, {0, 0, 1}, {0, 0, 1, 1, 0}, {0, 1, 0, 0, 1}, {0, 1, 2, 0, 0, 2}, {0, 1, 1, 2}}) {
    Restart();
    for (const int stream : streams) ASSERT_NO_FATAL_FAILURE(Call(stream));
    streams_[streams.back()]->Wait();
    std::vector<char> copies = copies_->Fetch();
    for (int call = 0; call < calls_; ++call) EXPECT_EQ(copies[call], call);
  }
}

TEST_F(StreamOrderTest, WaitsForTheLastCall) {
  StreamOrder().Wait();
  for (const int stream : {0, 1, 1}) ASSERT_NO_FATAL_FAILURE(Call(stream));
  order_->Wait();
  for (const auto& stream : streams_) EXPECT_EQ(cudaStreamQuery(stream->get()), cudaSuccess);
}

// New rows of a group are those that the tables would give one after another, with the CPU's initial
// contents.

struct NewRowsOfTable {
  Initializer initializer;
  int64_t dim = 1;
  std::vector<SlotSpec> slots;
  int64_t count = 0;
};

// A table whose rows 0 to 4 are in use and of which rows 2 and 3 were freed, in this order.
class TableWithFreeRows {
 public:
  TableWithFreeRows(const NewRowsOfTable& made, AsyncAllocator* memory)
      : directory(memory), store(made.dim, memory, memory) {
    EXPECT_TRUE(store.SetSlots(nullptr, made.slots, 0).ok());
    EXPECT_TRUE(store.Reserve(nullptr, made.count + 5).ok());
    EXPECT_TRUE(directory.Reserve(nullptr, made.count + 5, made.count + 5).ok());
    DeviceArray<int64_t> keys({-1, -2, -3, -4, -5}), rows({0, 0, 0, 0, 0});
    const std::vector<RowSource> sources = {SourceOf(directory)};
    const std::vector<KeyIndexView> indexes = {directory.view().index};
    DeviceArray<RowSource> device_sources(sources);
    DeviceArray<KeyIndexView> device_indexes(indexes);
    DeviceArray<int64_t> begin({0, 5});
    EXPECT_TRUE(GiveRows(nullptr, {1, device_sources.data(), device_indexes.data(), begin.data(), 5,
                                   keys.data(), rows.data()})
                    .ok());
    directory.CountGiven(5);
    EXPECT_TRUE(directory.ReserveErase(nullptr, 2).ok());
    DeviceArray<int64_t> freed({2, 3}), freed_keys({0, 0});
    EXPECT_TRUE(EraseRows(nullptr, directory, freed.data(), 2, freed_keys.data()).ok());
    directory.CountErased(nullptr, 2);
    freed_keys.Fetch();  // waits before the arrays are freed
  }

  KeyDirectory directory;
  DeviceRowStore store;
};

// The records of the keys, one after another.
std::vector<float> NewRecords(const NewRowsOfTable& made, const std::vector<int64_t>& keys) {
  std::vector<float> records;
  for (const int64_t key : keys) {
    std::vector<float> row(made.dim);
    FillRow(made.initializer, key, Span<float>(row));
    records.insert(records.end(), row.begin(), row.end());
    for (const SlotSpec& slot : made.slots) records.insert(records.end(), slot.width, slot.fill);
  }
  return records;
}

void ExpectTable(const TableWithFreeRows& table, const NewRowsOfTable& made, std::vector<int64_t> keys,
                 const std::vector<int64_t>& rows) {
  const auto n = static_cast<int64_t>(keys.size());
  // The row that was freed last comes first.
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < n; ++i) expected.push_back(i < 2 ? 3 - i : 3 + i);
  EXPECT_EQ(rows, expected);
  DeviceArray<int64_t> device_keys(keys), found(std::vector<int64_t>(n, -7)), device_rows(rows);
  ASSERT_TRUE(FindKeys(nullptr, table.directory.view().index, device_keys.data(), n, found.data()).ok());
  EXPECT_EQ(found.Fetch(), expected);
  const int64_t width = table.store.width();
  DeviceArray<float> values(std::vector<float>(n * width, -7.0f));
  ASSERT_TRUE(
      GatherRows(nullptr, table.store.view(), {device_rows.data(), 0, n}, 0, width, values.data()).ok());
  EXPECT_EQ(BitsOf(values.Fetch()), BitsOf(NewRecords(made, keys)));
}

TEST(MakeRowsTest, OfSeveralTables) {
  AsyncAllocator memory;
  const std::vector<NewRowsOfTable> made = {
      {{InitializerKind::kUniform, -1.0f, 1.0f, 1}, 16, {{16, 0.1f}}, 70},
      {{InitializerKind::kUniform, -1.0f, 1.0f, 2}, 3, {}, 0},
      {{InitializerKind::kNormal, 0.0f, 2.0f, 3}, 1, {{1, 2.0f}, {1, 3.0f}}, 300},
      {{InitializerKind::kUniform, 0.0f, 1.0f, 4}, 130, {{130, 0.5f}}, 9},
      {{InitializerKind::kConstant, 0.5f, 0.0f, 5}, 8, {}, 1},
      {{InitializerKind::kTruncatedNormal, 0.0f, 1.0f, 6}, 6, {{3, 0.25f}}, 33}};
  std::vector<TableWithFreeRows> tables;
  std::vector<RowMaker> makers;
  RowsToMake work;
  std::vector<int64_t> begins = {0};
  for (const NewRowsOfTable& of_table : made) {
    tables.emplace_back(of_table, &memory);
    makers.push_back({SourceOf(tables.back().directory), tables.back().store.view(), of_table.initializer});
    begins.push_back(begins.back() + of_table.count);
    work.max_width = std::max(work.max_width, tables.back().store.width());
  }
  work.count = begins.back();
  // Every second id of the group is new, from the last one on.
  std::vector<int64_t> keys(2 * work.count, 13);
  std::vector<int32_t> which(work.count);
  for (int64_t k = 0; k < work.count; ++k) {
    which[k] = static_cast<int32_t>(2 * (work.count - k) - 1);
    keys[which[k]] = static_cast<int64_t>(Mix64(k) >> 1);
  }
  DeviceArray<RowMaker> device_makers(makers);
  DeviceArray<int64_t> begin(begins), device_keys(keys), rows(std::vector<int64_t>(keys.size(), -9));
  DeviceArray<int64_t> new_rows(std::vector<int64_t>(work.count, -9));
  DeviceArray<int32_t> device_which(which);
  work.tables = static_cast<int>(made.size());
  work.makers = device_makers.data();
  work.keys = device_keys.data();
  work.some = {begin.data(), device_which.data()};
  work.made = new_rows.data();
  work.rows = rows.data();
  ASSERT_TRUE(MakeRows(nullptr, work).ok());

  const std::vector<int64_t> of_ids = rows.Fetch();
  const std::vector<int64_t> of_work = new_rows.Fetch();
  for (size_t i = 0; i < of_ids.size(); i += 2) EXPECT_EQ(of_ids[i], -9);
  for (size_t t = 0; t < made.size(); ++t) {
    SCOPED_TRACE(t);
    std::vector<int64_t> new_keys, given;
    for (int64_t k = begins[t]; k < begins[t + 1]; ++k) {
      new_keys.push_back(keys[which[k]]);
      given.push_back(of_work[k]);
      EXPECT_EQ(of_ids[which[k]], of_work[k]);
    }
    ExpectTable(tables[t], made[t], new_keys, given);
  }
}

}  // namespace
}  // namespace sok
