// Which rows are on the device is compared with a clock that passes one frame after the other, and the
// records with what was written.
#include "cuda/store/device_tiers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/hash.h"
#include "cc/disk/row_file.h"
#include "cc/table/tier_options.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/base/testing/limited_allocator.h"
#include "cuda/base/transfers.h"
#include "cuda/store/device_row_store.h"
#include "cuda/store/row_pieces.h"
#include "cuda/store/tier_disk.h"

namespace sok {
namespace {

// What DeviceTiers does, one row and one frame after the other.
class TiersReference {
 public:
  TiersReference(int64_t limit, bool by_frequency) : limit_(limit), by_frequency_(by_frequency) {}

  void Reserve(int64_t rows) {
    for (; rows_ < rows && rows_ < limit_; ++rows_) frames_.push_back({rows_, 0, 0});
    rows_ = std::max(rows_, rows);
  }

  void BringUp(const std::vector<int64_t>& rows) {
    ++call_;
    std::vector<int64_t> missing;
    for (const int64_t row : rows) {
      if (row < 0) continue;
      const auto frame = std::find_if(frames_.begin(), frames_.end(),
                                      [row](const Frame& frame) { return frame.row == row; });
      if (frame == frames_.end()) {
        missing.push_back(row);
        continue;
      }
      ++hits_;
      frame->uses = by_frequency_ ? std::min(frame->uses + 1, 15) : 1;
      frame->call = call_;
    }
    misses_ += static_cast<int64_t>(missing.size());
    const auto frames = static_cast<int64_t>(frames_.size());
    size_t next = 0;
    for (int64_t passed = 0; passed < 16 * frames && next < missing.size(); ++passed) {
      Frame& frame = frames_[hand_];
      hand_ = (hand_ + 1) % frames;
      if (frame.call == call_) continue;
      if (frame.uses > 0) {
        --frame.uses;
        continue;
      }
      frame = {missing[next++], call_, by_frequency_ ? 0 : 1};
      ++moved_;
    }
  }

  std::vector<int64_t> RowsOfFrames() const {
    std::vector<int64_t> rows;
    for (const Frame& frame : frames_) rows.push_back(frame.row);
    return rows;
  }
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }
  int64_t moved() const { return moved_; }

 private:
  struct Frame {
    int64_t row;
    int64_t call;
    int uses;
  };

  const int64_t limit_;
  const bool by_frequency_;
  int64_t rows_ = 0;
  std::vector<Frame> frames_;
  int64_t hand_ = 0;
  int64_t call_ = 0;
  int64_t hits_ = 0;
  int64_t misses_ = 0;
  int64_t moved_ = 0;
};

// A store whose rows hold numbers that are functions of the row, beside its reference.
class TieredRows {
 public:
  TieredRows(int64_t dim, int64_t frames, bool by_frequency)
      : dim_(dim),
        store_(dim, &host, &device, /*slab_bytes=*/64, {}, OptionsFor(dim, frames, by_frequency)),
        reference_(frames, by_frequency) {}

  static TierOptions OptionsFor(int64_t dim, int64_t frames, bool by_frequency) {
    return {frames * ((4 * dim + 15) / 16 * 16) + 15, "", by_frequency};
  }

  void Grow(int64_t rows) {
    ASSERT_TRUE(store_.Reserve(nullptr, rows).ok());
    DeviceArray<float> values(Values(rows_, rows));
    ASSERT_TRUE(
        ScatterRows(nullptr, store_.view(), {nullptr, rows_, rows - rows_}, 0, dim_, values.data()).ok());
    values.Fetch();  // waits before the array is freed
    rows_ = rows;
    reference_.Reserve(rows);
  }

  void ExpectAsTheReference() const {
    const TiersView view = store_.tiers()->view();
    ASSERT_EQ(view.frames, static_cast<int64_t>(reference_.RowsOfFrames().size()));
    EXPECT_EQ(Fetch(view.row_of_frame, view.frames), reference_.RowsOfFrames());
    const std::vector<int32_t> frames = Fetch(view.frame_of_row, rows_);
    const std::vector<char*> addresses = Fetch(view.addresses, rows_);
    int64_t up = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      cudaPointerAttributes attributes = {};
      ASSERT_EQ(cudaPointerGetAttributes(&attributes, addresses[row]), cudaSuccess);
      EXPECT_EQ(attributes.type, frames[row] < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice);
      if (frames[row] < 0) continue;
      ++up;
      EXPECT_EQ(reference_.RowsOfFrames()[frames[row]], row);
    }
    EXPECT_EQ(up, view.frames);
    EXPECT_EQ(std::set<char*>(addresses.begin(), addresses.end()).size(), addresses.size());
    DeviceArray<float> values(std::vector<float>(rows_ * dim_, -1.0f));
    ASSERT_TRUE(GatherRows(nullptr, store_.view(), {nullptr, 0, rows_}, 0, dim_, values.data()).ok());
    EXPECT_EQ(values.Fetch(), Values(0, rows_));
    RoundTrip round_trip;
    TierCounts counts;
    ASSERT_TRUE(store_.tiers()->FetchCounts(nullptr, &round_trip, &counts).ok());
    EXPECT_EQ(counts.hits, reference_.hits());
    EXPECT_EQ(counts.misses, reference_.misses());
    EXPECT_EQ(counts.bytes_up, reference_.moved() * store_.record_bytes());
    EXPECT_EQ(counts.bytes_down, counts.bytes_up);
  }

  DeviceRowStore& store() { return store_; }
  TiersReference& reference() { return reference_; }
  int64_t rows() const { return rows_; }

  PinnedAllocator host;
  LimitedAllocator device;

 private:
  template <typename T>
  static std::vector<T> Fetch(const T* device, int64_t n) {
    std::vector<T> values(n);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(values.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }
  std::vector<float> Values(int64_t first, int64_t end) const {
    std::vector<float> values;
    for (int64_t i = first * dim_; i < end * dim_; ++i) values.push_back(static_cast<float>(Mix64(i) >> 40));
    return values;
  }

  const int64_t dim_;
  int64_t rows_ = 0;
  DeviceRowStore store_;
  TiersReference reference_;
};

// Some distinct rows, small ones more often, with absent ones among them.
std::vector<int64_t> SomeRows(int64_t rows, int64_t n, std::mt19937_64* random) {
  std::vector<int64_t> some;
  std::set<int64_t> seen;
  for (int64_t i = 0; i < n; ++i) {
    const double part = std::uniform_real_distribution<double>(0, 1)(*random);
    const auto row = static_cast<int64_t>(part * part * static_cast<double>(rows));
    if (seen.insert(row).second) some.push_back(row);
    if ((*random)() % 8 == 0) some.push_back(-1);
  }
  return some;
}

class DeviceTiersTest : public testing::TestWithParam<bool> {
 protected:
  // One call for all of these tables, with their rows.
  void BringUpAll(const std::vector<TieredRows*>& tables, const std::vector<std::vector<int64_t>>& rows) {
    std::vector<std::unique_ptr<DeviceArray<int64_t>>> arrays;
    std::vector<NeededRows> needed;
    for (size_t t = 0; t < tables.size(); ++t) {
      arrays.push_back(std::make_unique<DeviceArray<int64_t>>(rows[t]));
      needed.push_back(
          {tables[t]->store().tiers(), arrays.back()->data(), static_cast<int64_t>(rows[t].size())});
      tables[t]->reference().BringUp(rows[t]);
    }
    ASSERT_TRUE(BringUp(nullptr, &scratch_, &upload_, needed).ok());
    for (const auto& array : arrays) array->Fetch();  // waits before they are freed
  }

  AsyncAllocator scratch_;
  StagedUpload upload_;
};

INSTANTIATE_TEST_SUITE_P(Order, DeviceTiersTest, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "ByFrequency" : "ByRecency");
});

TEST_P(DeviceTiersTest, FramesHoldWhatAClockLeaves) {
  std::mt19937_64 random(7);
  TieredRows few(1, 1, GetParam());
  TieredRows some(5, 6, GetParam());
  TieredRows many(33, 20, GetParam());
  const std::vector<TieredRows*> tables = {&few, &some, &many};
  for (int call = 0; call < 12; ++call) {
    std::vector<std::vector<int64_t>> rows;
    for (TieredRows* table : tables) {
      if (call % 3 == 0) table->Grow(table->rows() + 4 + 3 * call);
      rows.push_back(SomeRows(table->rows(), call % 4 == 3 ? 25 : 6, &random));
    }
    if (call == 5) rows[1].clear();
    BringUpAll(tables, rows);
    for (TieredRows* table : tables)
      ASSERT_NO_FATAL_FAILURE(table->ExpectAsTheReference()) << "call " << call;
  }
}

// Rows that were used often leave at last, but a frame counts no more than 15 uses.
TEST_P(DeviceTiersTest, FrequentRowsStayForAWhile) {
  TieredRows table(4, 3, GetParam());
  table.Grow(40);
  for (int call = 0; call < 18; ++call) {
    BringUpAll({&table}, {call < 8 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0}});
  }
  table.ExpectAsTheReference();
  for (int64_t row = 10; row < 40; row += 2) {
    BringUpAll({&table}, {{row, row + 1}});
    table.ExpectAsTheReference();
  }
}

// A call's rows are never victims, and what does not fit is left in host memory.
TEST_P(DeviceTiersTest, ACallMayNeedMoreThanFits) {
  TieredRows table(4, 3, GetParam());
  table.Grow(10);
  BringUpAll({&table}, {{9, 1, 8, 7, 6, 5}});
  table.ExpectAsTheReference();
  EXPECT_EQ(table.reference().RowsOfFrames(), (std::vector<int64_t>{9, 1, 8}));
  BringUpAll({&table}, {{9, 8, 1, 0}});
  table.ExpectAsTheReference();
  EXPECT_EQ(table.reference().RowsOfFrames(), (std::vector<int64_t>{9, 1, 8}));
}

TEST_P(DeviceTiersTest, NothingMovesWhileAllFits) {
  TieredRows table(4, 3, GetParam());
  BringUpAll({&table}, {{-1}});
  table.Grow(3);
  BringUpAll({&table}, {{2, -1, 0}});
  BringUpAll({&table}, {{}});
  table.ExpectAsTheReference();
  EXPECT_EQ(table.reference().hits(), 2);
}

// The rows stay when slots are added, as far as they fit, and the counts go on.
TEST_P(DeviceTiersTest, SlotsLeaveFewerFrames) {
  TieredRows table(4, 4, GetParam());
  table.Grow(9);
  BringUpAll({&table}, {{8, 0}});
  ASSERT_TRUE(table.store().SetSlots(nullptr, std::vector<SlotSpec>{{4, 0.5f}}, 9).ok());
  EXPECT_EQ(table.store().tiers()->frames(), 2);
  DeviceArray<float> values(std::vector<float>(9 * 4, -1.0f));
  ASSERT_TRUE(GatherRows(nullptr, table.store().view(), {nullptr, 0, 9}, 4, 4, values.data()).ok());
  for (const float slot : values.Fetch()) {
    EXPECT_EQ(slot, 0.5f);
  }
  RoundTrip round_trip;
  TierCounts counts;
  ASSERT_TRUE(table.store().tiers()->FetchCounts(nullptr, &round_trip, &counts).ok());
  EXPECT_EQ(counts.hits, 1);
  EXPECT_EQ(counts.misses, 1);
  EXPECT_EQ(counts.bytes_up, 16);
  DeviceArray<int64_t> rows(std::vector<int64_t>{5, 6});
  const NeededRows needed = {table.store().tiers(), rows.data(), 2};
  ASSERT_TRUE(BringUp(nullptr, &scratch_, &upload_, Span<const NeededRows>(&needed, 1)).ok());
  ASSERT_TRUE(table.store().tiers()->FetchCounts(nullptr, &round_trip, &counts).ok());
  EXPECT_EQ(counts.bytes_up, 16 + 2 * 32);
}

// As it does if one embedding variable has two names in a group.
TEST_P(DeviceTiersTest, ATableMayOccurTwice) {
  TieredRows table(4, 3, GetParam());
  table.Grow(9);
  BringUpAll({&table, &table}, {{8, 7, 1}, {6, 7, 8}});
  table.ExpectAsTheReference();
}

TEST_P(DeviceTiersTest, WithoutMemoryNothingChanges) {
  TieredRows table(4, 3, GetParam());
  table.Grow(5);
  BringUpAll({&table}, {{4}});
  table.device.limit = table.device.in_use;
  EXPECT_EQ(table.store().Reserve(nullptr, 5000).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(table.store().rows(), 5);
  LimitedAllocator none;
  none.limit = 0;
  DeviceArray<int64_t> rows(std::vector<int64_t>{3});
  const NeededRows needed = {table.store().tiers(), rows.data(), 1};
  EXPECT_EQ(BringUp(nullptr, &none, &upload_, Span<const NeededRows>(&needed, 1)).code(),
            StatusCode::kResourceExhausted);
  table.device.limit = INT64_MAX;
  table.ExpectAsTheReference();
}

// Rows and what their records hold, beside a disk below a few frames.
class TierDiskModel {
 public:
  static constexpr int64_t kBytes = 1 << 16;  // few fill a segment of the file
  static constexpr int64_t kFrames = 8;

  explicit TierDiskModel(bool by_frequency) {
    const int64_t frame_bytes = kBytes + static_cast<int64_t>(sizeof(HostFrame));
    auto made = TierDisk::Create({1, testing::TempDir(), by_frequency, kFrames * frame_bytes}, kBytes);
    EXPECT_TRUE(made.ok()) << made.status().message();
    disk_ = std::move(made.value());
    EXPECT_EQ(disk_->limit(), kFrames);
    AddFrames(kFrames);
  }

  // A call that writes some rows, after it has found in them what was written last.
  void Write(const std::vector<int64_t>& rows, DiskUse use) {
    disk_->BeginCall();
    std::vector<int64_t> missing;
    for (const int64_t row : rows) {
      if (records_.count(row) == 0) missing.push_back(row);
      if (records_.count(row) != 0) FrameOf(records_[row])->use = disk_->call() << kUseBits | 1;
    }
    std::vector<TierDisk::Moved> moved;
    const Status status = disk_->BringUp(
        missing, use, /*spare=*/0,
        [this](int64_t n) {
          AddFrames(n);
          return OkStatus();
        },
        &moved);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const TierDisk::Moved& one : moved) {
      if (one.record == nullptr) records_.erase(one.row);
      if (one.record != nullptr) records_[one.row] = one.record;
    }
    for (const int64_t row : rows) {
      ASSERT_EQ(records_.count(row), 1u) << row;
      const bool was_written = use != DiskUse::kNew && written_.count(row) != 0;
      const std::string expected(kBytes, was_written ? written_[row] : records_[row][0]);
      ASSERT_EQ(std::string(records_[row], kBytes), expected) << row;
      written_[row] = static_cast<char>(written_[row] + 1);
      std::memset(records_[row], written_[row], kBytes);
    }
  }

  const TierDisk& disk() const { return *disk_; }

 private:
  void AddFrames(int64_t n) {
    memory_.emplace_back((n * disk_->frame_bytes() + 15) / 16);
    disk_->AddFrames(reinterpret_cast<char*>(memory_.back().data()), /*first=*/-1, n);
  }

  struct alignas(16) Word {
    char bytes[16];
  };
  std::unique_ptr<TierDisk> disk_;
  std::vector<std::vector<Word>> memory_;
  std::map<int64_t, char*> records_;  // of rows in memory
  std::map<int64_t, char> written_;
};

TEST(TierDiskTest, RowsComeBackAsTheyWentDown) {
  for (const bool by_frequency : {false, true}) {
    TierDiskModel model(by_frequency);
    std::mt19937 random(1);
    std::set<int64_t> rows;
    for (uint32_t call = 0; call < 400 && !testing::Test::HasFatalFailure(); ++call) {
      rows.clear();
      while (rows.size() < 1 + call % 8) rows.insert(random() % 300);
      model.Write({rows.begin(), rows.end()}, call % 7 == 0 ? DiskUse::kNew : DiskUse::kLookup);
    }
    EXPECT_EQ(model.disk().frames(), TierDiskModel::kFrames);
    // Places are freed: the file does not grow with the calls.
    EXPECT_LE(model.disk().file().bytes(), 300 * TierDiskModel::kBytes * 5 / 2);
    EXPECT_LE(model.disk().file().records(), 300);
    EXPECT_GT(model.disk().rows_read(), 400);
  }
}

}  // namespace
}  // namespace sok
