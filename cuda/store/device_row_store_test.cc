// Rows are compared with the CPU's store and initializers.
#include "cuda/store/device_row_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/hash.h"
#include "cc/base/testing/test_ids.h"
#include "cc/initializers/initializer.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/base/testing/limited_allocator.h"
#include "cuda/store/device_slabs.h"
#include "cuda/store/row_pieces.h"

namespace sok {
namespace {

const std::vector<int64_t> kDims = {1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 64, 100, 128, 256, 1000};

// `n` floats with any bits, NaNs among them.
std::vector<float> AnyFloats(int64_t n, uint64_t seed) {
  std::vector<uint32_t> bits(n);
  for (int64_t i = 0; i < n; ++i) bits[i] = static_cast<uint32_t>(Mix64(Mix64(seed) + i));
  std::vector<float> floats(n);
  if (n > 0) std::memcpy(floats.data(), bits.data(), n * sizeof(float));
  return floats;
}

// The expected record of a new row.
std::vector<float> NewRecord(const Initializer& initializer, int64_t key, int64_t dim,
                             const std::vector<SlotSpec>& slots) {
  std::vector<float> record(dim);
  FillRow(initializer, key, Span<float>(record));
  for (const SlotSpec& slot : slots) record.insert(record.end(), slot.width, slot.fill);
  return record;
}

class DeviceRowStoreTest : public testing::Test {
 protected:
  // Some columns of the rows [0, n).
  static std::vector<float> Read(const DeviceRowStore& store, int64_t n, int64_t first_column,
                                 int64_t columns) {
    DeviceArray<float> values(std::vector<float>(n * columns, -7.0f));
    EXPECT_TRUE(
        GatherRows(nullptr, store.view(), {nullptr, 0, n}, first_column, columns, values.data()).ok());
    return values.Fetch();
  }
  static void Write(const DeviceRowStore& store, const std::vector<float>& values, int64_t first_column,
                    int64_t columns) {
    DeviceArray<float> array(values);
    const auto n = static_cast<int64_t>(values.size()) / columns;
    EXPECT_TRUE(
        ScatterRows(nullptr, store.view(), {nullptr, 0, n}, first_column, columns, array.data()).ok());
    array.Fetch();  // waits before the array is freed
  }

  LimitedAllocator device_;
};

TEST_F(DeviceRowStoreTest, RecordsAreAlignedAndHoldSlots) {
  for (const int64_t dim : kDims) {
    DeviceRowStore store(dim, &device_, &device_);
    const std::vector<SlotSpec> slots = {{dim, 0.5f}, {1, 2.0f}, {3, -1.0f}};
    ASSERT_TRUE(store.SetSlots(nullptr, slots, 0).ok());
    EXPECT_EQ(store.dim(), dim);
    EXPECT_EQ(store.num_slots(), 3);
    EXPECT_EQ(store.slot_spec(1).width, 1);
    EXPECT_EQ(store.slot_offset(0), dim);
    EXPECT_EQ(store.slot_offset(1), 2 * dim);
    EXPECT_EQ(store.slot_offset(2), 2 * dim + 1);
    EXPECT_EQ(store.width(), 2 * dim + 4);
    EXPECT_EQ(store.record_bytes() % 16, 0);
    EXPECT_GE(store.record_bytes(), 4 * store.width());
    EXPECT_LT(store.record_bytes(), 4 * store.width() + 16);
    EXPECT_EQ(store.view().record_bytes, store.record_bytes());
  }
}

TEST_F(DeviceRowStoreTest, EveryFloatOfEveryRowIsItsOwn) {
  for (const int64_t dim : kDims) {
    DeviceRowStore store(dim, &device_, &device_);
    ASSERT_TRUE(store.SetSlots(nullptr, std::vector<SlotSpec>{{1, 0.0f}}, 0).ok());
    const int64_t rows = dim > 100 ? 3 : 20;
    const std::vector<float> values = AnyFloats(rows * (dim + 1), dim);
    ASSERT_TRUE(store.Reserve(nullptr, rows).ok());
    Write(store, values, 0, dim + 1);
    EXPECT_EQ(BitsOf(Read(store, rows, 0, dim + 1)), BitsOf(values)) << dim;
  }
}

TEST_F(DeviceRowStoreTest, NewRowsHoldWhatTheCpusHold) {
  for (const int64_t dim : kDims) {
    for (const InitializerKind kind : {InitializerKind::kConstant, InitializerKind::kUniform,
                                       InitializerKind::kNormal, InitializerKind::kTruncatedNormal}) {
      const Initializer initializer = {kind, 0.25f, 1.5f, Mix64(dim)};
      const std::vector<SlotSpec> slots = {{dim, 0.125f}, {2, -3.0f}};
      DeviceRowStore store(dim, &device_, &device_);
      ASSERT_TRUE(store.SetSlots(nullptr, slots, 0).ok());
      const std::vector<int64_t> keys = HostileIds();
      const auto n = static_cast<int64_t>(keys.size());
      ASSERT_TRUE(store.Reserve(nullptr, n).ok());
      const std::vector<float> before = AnyFloats(n * store.width(), 1);
      Write(store, before, 0, store.width());
      // In reverse order, and without one of them.
      std::vector<int64_t> rows(n);
      std::vector<float> expected(n * store.width());
      for (int64_t i = 0; i < n; ++i) {
        rows[i] = n - 1 - i;
        const std::vector<float> record = NewRecord(initializer, keys[i], dim, slots);
        std::copy(record.begin(), record.end(), expected.begin() + rows[i] * store.width());
      }
      std::copy_n(before.begin() + rows[4] * store.width(), store.width(),
                  expected.begin() + rows[4] * store.width());
      rows[4] = -1;
      DeviceArray<int64_t> device_keys(keys);
      DeviceArray<int64_t> device_rows(rows);
      ASSERT_TRUE(
          StartRows(nullptr, store.view(), initializer, /*seed=*/0, device_keys.data(), device_rows.data(), n)
              .ok());
      EXPECT_EQ(BitsOf(Read(store, n, 0, store.width())), BitsOf(expected)) << dim;
    }
  }
}

TEST_F(DeviceRowStoreTest, SlotsComeAndGoAndWeightsStay) {
  for (const int64_t dim : {1, 3, 16, 63}) {
    DeviceRowStore store(dim, &device_, &device_);
    const int64_t rows = 40;
    ASSERT_TRUE(store.Reserve(nullptr, rows + 10).ok());
    const std::vector<float> weights = AnyFloats(rows * dim, dim);
    Write(store, weights, 0, dim);
    const std::vector<SlotSpec> adam = {{dim, 0.0f}, {dim, 0.0f}};
    const std::vector<SlotSpec> three = {{dim, 0.25f}, {1, -2.0f}, {dim, 1.0f}};
    for (const std::vector<SlotSpec>& slots : {three, adam, {{1, 0.1f}}, std::vector<SlotSpec>{}, three}) {
      ASSERT_TRUE(store.SetSlots(nullptr, slots, rows).ok());
      EXPECT_EQ(store.rows(), rows + 10);
      EXPECT_EQ(BitsOf(Read(store, rows, 0, dim)), BitsOf(weights));
      for (int k = 0; k < store.num_slots(); ++k) {
        EXPECT_EQ(Read(store, rows, store.slot_offset(k), slots[k].width),
                  std::vector<float>(rows * slots[k].width, slots[k].fill));
      }
    }
    ASSERT_TRUE(store.Reserve(nullptr, 3000).ok());
    EXPECT_EQ(BitsOf(Read(store, rows, 0, dim)), BitsOf(weights));
  }
  EXPECT_EQ(device_.in_use, 0);
}

// Neither rows nor the slots' fills are freed before they are read, whatever stream had the memory before.
TEST_F(DeviceRowStoreTest, SlotsChangeOnAnotherStream) {
  for (const TierOptions& tiers : {TierOptions(), TierOptions{64, "", false}}) {
    const DeviceStream first, second;
    const std::vector<float> weights = AnyFloats(5 * 3, 1);
    DeviceArray<float> written(weights);
    DeviceArray<float> read(std::vector<float>(5 * 3, -7.0f));
    DeviceArray<int64_t> key({4711}), row({5});
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // the arrays are written on the null stream
    {
      DeviceRowStore store(3, &device_, &device_, DeviceSlabs::kSlabBytes, {}, tiers);
      ASSERT_TRUE(store.SetSlots(first.get(), std::vector<SlotSpec>{{3, 0.5f}}, 0).ok());
      ASSERT_TRUE(store.Reserve(first.get(), 6).ok());
      ASSERT_TRUE(ScatterRows(first.get(), store.view(), {nullptr, 0, 5}, 0, 3, written.data()).ok());
      first.Wait();
      const Initializer initializer = {InitializerKind::kConstant, 0.25f, 0.0f, 0};
      ASSERT_TRUE(
          StartRows(second.get(), store.view(), initializer, /*seed=*/0, key.data(), row.data(), 1).ok());
      ASSERT_TRUE(store.SetSlots(second.get(), std::vector<SlotSpec>{{2, 1.0f}}, 6).ok());
      ASSERT_TRUE(GatherRows(second.get(), store.view(), {nullptr, 0, 5}, 0, 3, read.data()).ok());
    }
    first.Wait();
    second.Wait();
    EXPECT_EQ(BitsOf(read.Fetch()), BitsOf(weights));
  }
}

TEST_F(DeviceRowStoreTest, BadWidthsAndMissingMemoryChangeNothing) {
  DeviceRowStore store(4, &device_, &device_);
  ASSERT_TRUE(store.Reserve(nullptr, 100).ok());
  const std::vector<float> weights = AnyFloats(400, 4);
  Write(store, weights, 0, 4);
  const int64_t bytes = store.bytes();
  for (const int64_t width : {int64_t{0}, int64_t{-3}, std::numeric_limits<int64_t>::max()}) {
    const Status status = store.SetSlots(nullptr, std::vector<SlotSpec>{{4, 0.0f}, {width, 0.0f}}, 100);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(std::to_string(width)), std::string::npos) << status.message();
  }
  device_.limit = device_.in_use + 1000;
  EXPECT_EQ(store.SetSlots(nullptr, std::vector<SlotSpec>{{4, 0.0f}}, 100).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(store.Reserve(nullptr, 1000).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(store.num_slots(), 0);
  EXPECT_EQ(store.record_bytes(), 16);
  EXPECT_EQ(store.bytes(), bytes);
  EXPECT_EQ(device_.in_use, bytes);
  EXPECT_EQ(BitsOf(Read(store, 100, 0, 4)), BitsOf(weights));
}

TEST_F(DeviceRowStoreTest, RowsInTheHostsMemory) {
  PinnedAllocator host;
  DeviceRowStore store(7, &host, &device_);
  ASSERT_TRUE(store.Reserve(nullptr, 50).ok());
  const std::vector<float> weights = AnyFloats(350, 9);
  Write(store, weights, 0, 7);
  ASSERT_TRUE(store.Reserve(nullptr, 500).ok());
  ASSERT_TRUE(store.SetSlots(nullptr, std::vector<SlotSpec>{{7, 0.5f}}, 50).ok());
  EXPECT_EQ(BitsOf(Read(store, 50, 0, 7)), BitsOf(weights));
  EXPECT_EQ(Read(store, 50, 7, 7), std::vector<float>(350, 0.5f));
  // Device memory only holds the addresses of slabs and the fills.
  EXPECT_LT(device_.in_use, 1000);
}

// Every seventh of 100 places holds no row, the others distinct ones of 120.
std::vector<int64_t> ListOfRows() {
  std::vector<int64_t> list(100);
  for (size_t i = 0; i < list.size(); ++i) list[i] = i % 7 == 1 ? -1 : static_cast<int64_t>(i) * 49 % 120;
  return list;
}

// Some of these pieces, and rows of some of these dims, are aligned to 16 bytes, and some are not.
TEST_F(DeviceRowStoreTest, PiecesOfListedRows) {
  const std::vector<int64_t> list = ListOfRows();
  const auto n = static_cast<int64_t>(list.size());
  DeviceArray<int64_t> rows(list);
  for (const int64_t dim : {1, 5, 32, 70, 160}) {
    DeviceRowStore store(dim, &device_, &device_);
    ASSERT_TRUE(store.SetSlots(nullptr, std::vector<SlotSpec>{{4, 0.0f}, {2, 0.0f}}, 0).ok());
    ASSERT_TRUE(store.Reserve(nullptr, 120).ok());
    const int64_t width = dim + 6;
    std::vector<float> table = AnyFloats(120 * width, dim);
    Write(store, table, 0, width);
    const std::vector<std::pair<int64_t, int64_t>> pieces = {
        {0, width}, {0, dim}, {dim, 4}, {dim + 4, 2}, {width - 1, 1}};
    for (const auto& [first, columns] : pieces) {
      for (const int64_t shift : {0, 1}) {
        const std::vector<float> before = AnyFloats(n * columns + shift, 3);
        const std::vector<float> fresh = AnyFloats(n * columns + shift, 100 + first);
        std::vector<float> expected = before;
        DeviceArray<float> values(before), new_values(fresh);
        const RowList of_list = {rows.data(), 0, n};
        ASSERT_TRUE(GatherRows(nullptr, store.view(), of_list, first, columns, values.data() + shift).ok());
        ASSERT_TRUE(
            ScatterRows(nullptr, store.view(), of_list, first, columns, new_values.data() + shift).ok());
        for (int64_t i = 0; i < n; ++i) {
          if (list[i] < 0) continue;
          float* const row = table.data() + list[i] * width + first;
          std::copy_n(row, columns, expected.begin() + shift + i * columns);
          std::copy_n(fresh.begin() + shift + i * columns, columns, row);
        }
        EXPECT_EQ(BitsOf(values.Fetch()), BitsOf(expected));
        EXPECT_EQ(BitsOf(Read(store, 120, 0, width)), BitsOf(table));
      }
    }
    ASSERT_TRUE(GatherRows(nullptr, store.view(), {rows.data(), 0, n}, 0, 0, nullptr).ok());
    ASSERT_TRUE(GatherRows(nullptr, store.view(), {nullptr, 0, 0}, 0, dim, nullptr).ok());
  }
}

constexpr RecordFormat kRoundedFormats[] = {{FloatType::kBfloat16, FloatType::kBfloat16},
                                            {FloatType::kFloat16, FloatType::kFloat32},
                                            {FloatType::kFloat32, FloatType::kBfloat16},
                                            {FloatType::kBfloat16, FloatType::kFloat32},
                                            {FloatType::kBfloat16, FloatType::kBfloat16, Rounding::kNearest}};
constexpr uint64_t kSeed = 71;

// The bytes of a record of the first slab.
std::vector<char> BytesOfRecord(const DeviceRowStore& store, int64_t row) {
  char* slab = nullptr;
  EXPECT_EQ(cudaMemcpy(&slab, store.view().slabs, sizeof(slab), cudaMemcpyDeviceToHost), cudaSuccess);
  std::vector<char> bytes(store.record_bytes());
  EXPECT_EQ(cudaMemcpy(bytes.data(), slab + row * store.record_bytes(), bytes.size(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  return bytes;
}

// The floats that the layout of the CPU finds in a record.
std::vector<float> FloatsOfRecord(const DeviceRowStore& store, int64_t row) {
  std::vector<float> floats(store.width());
  store.layout().Read(BytesOfRecord(store, row).data(), floats.data());
  return floats;
}

// Rounded to nearest by the layout of the CPU.
std::vector<float> RoundedBy(const RecordLayout& layout, const std::vector<float>& floats) {
  std::vector<char> record(layout.bytes());
  std::vector<float> rounded(floats.size());
  layout.Write(floats.data(), record.data());
  layout.Read(record.data(), rounded.data());
  return rounded;
}

TEST_F(DeviceRowStoreTest, RecordsIn16BitsAreThoseOfTheLayout) {
  const Initializer initializer = {InitializerKind::kNormal, 0.0f, 1.0f, 5};
  const std::vector<int64_t> keys = {-3, INT64_MAX, 12};
  const std::vector<int64_t> numbers = {0, 1, 2};
  const auto n = static_cast<int64_t>(keys.size());
  for (RecordFormat format : kRoundedFormats) {
    format.seed = kSeed;
    for (const int64_t dim : {1, 2, 3, 5, 8, 12, 64, 129}) {
      SCOPED_TRACE(testing::Message() << NameOf(format.weights) << ", dim " << dim);
      DeviceRowStore store(dim, &device_, &device_, DeviceSlabs::kSlabBytes, format);
      ASSERT_TRUE(store.Reserve(nullptr, n).ok());
      DeviceArray<int64_t> device_keys(keys), rows(numbers);
      const auto start = [&] {
        return StartRows(nullptr, store.view(), initializer, kSeed, device_keys.data(), rows.data(), n);
      };
      ASSERT_TRUE(start().ok());
      const std::vector<SlotSpec> slots = {{dim, 0.3f}, {dim, 0.0f}, {1, 0.7f, /*one_per_row=*/true}};
      // Moved to records with slots, and started as such.
      ASSERT_TRUE(store.SetSlots(nullptr, slots, n).ok());
      for (const bool moved : {true, false}) {
        ASSERT_TRUE(moved || start().ok());
        for (int64_t row = 0; row < n; ++row) {
          const std::vector<float> fresh =
              RoundedBy(store.layout(), NewRecord(initializer, keys[row], dim, slots));
          ASSERT_EQ(FloatsOfRecord(store, row), fresh) << (moved ? "moved" : "started");
          if (moved || !store.layout().shape().has_stream) continue;
          std::vector<char> with_key(store.layout().bytes());
          store.layout().SetKey(keys[row], with_key.data());
          const std::vector<char> bytes = BytesOfRecord(store, row);
          ASSERT_TRUE(std::equal(with_key.end() - 4, with_key.end(), bytes.begin() + with_key.size() - 4));
        }
      }
      std::vector<float> written = AnyFloats(n * store.width(), dim);
      Write(store, written, 0, store.width());
      std::vector<float> expected;
      for (int64_t row = 0; row < n; ++row) {
        const auto first = written.begin() + row * store.width();
        const std::vector<float> rounded = RoundedBy(store.layout(), {first, first + store.width()});
        ASSERT_EQ(BitsOf(FloatsOfRecord(store, row)), BitsOf(rounded));
        expected.insert(expected.end(), rounded.begin(), rounded.end());
      }
      ASSERT_EQ(BitsOf(Read(store, n, 0, store.width())), BitsOf(expected));
      EXPECT_EQ(store.record_bytes(), (store.layout().bytes() + 15) / 16 * 16);
    }
  }
}

// Records stay as slabs are added, and columns read as zero where nothing was written.

using Fresh = DeviceSlabs::Fresh;

class DeviceSlabsTest : public testing::Test {
 protected:
  // Records of 8 bytes as a column of numbers.
  static std::vector<int64_t> Read(const ColumnView<int64_t>& column, int64_t first, int64_t n) {
    DeviceArray<int64_t> values(std::vector<int64_t>(n, -7));
    EXPECT_TRUE(GatherColumn(nullptr, column, {nullptr, first, n}, values.data()).ok());
    return values.Fetch();
  }
  static void Write(const ColumnView<int64_t>& column, int64_t first, const std::vector<int64_t>& values) {
    DeviceArray<int64_t> array(values);
    const auto n = static_cast<int64_t>(values.size());
    EXPECT_TRUE(ScatterColumn(nullptr, column, {nullptr, first, n}, array.data()).ok());
    array.Fetch();  // waits before the array is freed
  }
  static std::vector<int64_t> Numbers(int64_t first, int64_t n) {
    std::vector<int64_t> numbers(n);
    for (int64_t i = 0; i < n; ++i) numbers[i] = static_cast<int64_t>(Mix64(first + i));
    return numbers;
  }

  LimitedAllocator slabs_, addresses_;
};

TEST_F(DeviceSlabsTest, RecordsStayAsSlabsAreAdded) {
  for (const int64_t slab_bytes : {1, 16, 64, 100, 1024, 1 << 20}) {
    DeviceSlabs slabs(8, Fresh::kZeroBytes, &slabs_, &addresses_, slab_bytes);
    EXPECT_EQ(slabs.bytes(), 0);
    std::vector<int64_t> expected;
    for (const int64_t n : {1, 2, 3, 5, 8, 9, 40, 41, 300, 1000}) {
      if (n > 20 * slab_bytes) break;  // not too many slabs
      ASSERT_TRUE(slabs.Reserve(nullptr, n).ok());
      EXPECT_EQ(slabs.size(), n);
      EXPECT_GE(slabs.bytes(), 8 * n);
      EXPECT_EQ(slabs.bytes(), slabs_.in_use + addresses_.in_use);
      const ColumnView<int64_t> column = {slabs.view()};
      expected.resize(n, 0);
      EXPECT_EQ(Read(column, 0, n), expected) << slab_bytes << ", " << n;
      // All but the last record, which later reservations have to leave zero.
      expected = Numbers(n, n);
      expected[n - 1] = 0;
      Write(column, 0, {expected.begin(), expected.end() - 1});
    }
    EXPECT_EQ(Read({slabs.view()}, 0, slabs.size()), expected);
  }
  EXPECT_EQ(slabs_.in_use + addresses_.in_use, 0);
}

// What a reservation copies and replaces is not freed before the copy, nor anything before it is read,
// whatever stream had the memory before.
TEST_F(DeviceSlabsTest, GrowthOnAnotherStream) {
  for (const int64_t slab_bytes : {64, 1 << 20}) {
    const DeviceStream first, second;
    DeviceArray<int64_t> values(Numbers(0, 5));
    DeviceArray<int64_t> read(std::vector<int64_t>(5, -7));
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // the arrays are written on the null stream
    {
      DeviceSlabs slabs(8, Fresh::kAnything, &slabs_, &addresses_, slab_bytes);
      ASSERT_TRUE(slabs.Reserve(first.get(), 5).ok());
      const ColumnView<int64_t> column = {slabs.view()};
      ASSERT_TRUE(ScatterColumn(first.get(), column, {nullptr, 0, 5}, values.data()).ok());
      first.Wait();
      ASSERT_TRUE(slabs.Reserve(second.get(), 300).ok());
      ASSERT_TRUE(
          GatherColumn(second.get(), ColumnView<int64_t>{slabs.view()}, {nullptr, 0, 5}, read.data()).ok());
    }
    first.Wait();
    second.Wait();
    EXPECT_EQ(read.Fetch(), Numbers(0, 5));
  }
}

TEST_F(DeviceSlabsTest, OneReservationOfManySlabs) {
  DeviceSlabs slabs(8, Fresh::kAnything, &slabs_, &addresses_, 64);
  ASSERT_TRUE(slabs.Reserve(nullptr, 1200).ok());
  Write({slabs.view()}, 0, Numbers(0, 1200));
  EXPECT_EQ(Read({slabs.view()}, 0, 1200), Numbers(0, 1200));
  ASSERT_TRUE(slabs.Reserve(nullptr, 100).ok());
  EXPECT_EQ(slabs.size(), 1200);
}

TEST_F(DeviceSlabsTest, ASmallTableTakesLittleMemory) {
  DeviceSlabs slabs(64, Fresh::kAnything, &slabs_, &addresses_);
  ASSERT_TRUE(slabs.Reserve(nullptr, 100).ok());
  EXPECT_LE(slabs.bytes(), 8 << 10);
  int64_t last = slabs.bytes();
  int allocations = 0;
  for (int64_t n = 101; n < 20'000; n += 7) {
    ASSERT_TRUE(slabs.Reserve(nullptr, n).ok());
    EXPECT_LE(slabs.bytes(), 2 * 64 * n + 1024);
    allocations += slabs.bytes() != last;
    last = slabs.bytes();
  }
  EXPECT_LE(allocations, 8);
}

TEST_F(DeviceSlabsTest, SlabsHaveTheSizeThatIsAskedFor) {
  DeviceSlabs slabs(48, Fresh::kAnything, &slabs_, &addresses_, 1000);
  ASSERT_TRUE(slabs.Reserve(nullptr, 17).ok());
  EXPECT_EQ(slabs.view().bits, 4);
  EXPECT_EQ(slabs.view().mask, 15);
  EXPECT_EQ(slabs_.in_use, 2 * 16 * 48);
  DeviceSlabs wide(5000, Fresh::kAnything, &slabs_, &addresses_, 1000);
  ASSERT_TRUE(wide.Reserve(nullptr, 3).ok());
  EXPECT_EQ(wide.view().bits, 0);
}

TEST_F(DeviceSlabsTest, WithoutMemoryNothingChanges) {
  for (LimitedAllocator* const short_of : {&slabs_, &addresses_}) {
    DeviceSlabs slabs(8, Fresh::kAnything, &slabs_, &addresses_, 64);
    ASSERT_TRUE(slabs.Reserve(nullptr, 5).ok());
    Write({slabs.view()}, 0, Numbers(0, 5));
    const int64_t bytes = slabs.bytes();
    // Memory for some of the slabs.
    short_of->limit = short_of->in_use + 200;
    for (const int64_t n :
         {int64_t{5000}, std::numeric_limits<int64_t>::max() / 8, std::numeric_limits<int64_t>::max()}) {
      EXPECT_EQ(slabs.Reserve(nullptr, n).code(), StatusCode::kResourceExhausted) << n;
    }
    EXPECT_EQ(slabs.size(), 5);
    EXPECT_EQ(slabs.bytes(), bytes);
    EXPECT_EQ(slabs_.in_use + addresses_.in_use, bytes);
    EXPECT_EQ(Read({slabs.view()}, 0, 5), Numbers(0, 5));
    short_of->limit = INT64_MAX;
    ASSERT_TRUE(slabs.Reserve(nullptr, 50).ok());
    EXPECT_EQ(Read({slabs.view()}, 0, 5), Numbers(0, 5));
  }
}

TEST_F(DeviceSlabsTest, ColumnsOfNumbersAndGenerations) {
  LimitedAllocator allocator;
  DeviceColumn<int64_t> steps(&allocator);
  DeviceColumn<uint32_t> generations(&allocator);
  ASSERT_TRUE(steps.Reserve(nullptr, 100).ok());
  ASSERT_TRUE(generations.Reserve(nullptr, 100).ok());
  EXPECT_EQ(steps.rows(), 100);
  EXPECT_EQ(steps.bytes() + generations.bytes(), allocator.in_use);
  const std::vector<int64_t> list = {99, -1, 0, 50, -1, 7};
  DeviceArray<int64_t> rows(list);
  const RowList some = {rows.data(), 0, 6};
  DeviceArray<int64_t> numbers({10, 11, 12, 13, 14, 15});
  DeviceArray<uint32_t> counts({20, 21, 22, 23, 24, 25});
  ASSERT_TRUE(ScatterColumn(nullptr, steps.view(), some, numbers.data()).ok());
  ASSERT_TRUE(ScatterColumn(nullptr, generations.view(), some, counts.data()).ok());
  ASSERT_TRUE(FillColumn(nullptr, steps.view(), {nullptr, 0, 3}, int64_t{-9}).ok());
  ASSERT_TRUE(FillColumn(nullptr, generations.view(), {rows.data() + 3, 0, 2}, uint32_t{4'000'000'000}).ok());
  DeviceArray<int64_t> read(std::vector<int64_t>(6, -7));
  DeviceArray<uint32_t> read_counts(std::vector<uint32_t>(6, 77));
  ASSERT_TRUE(GatherColumn(nullptr, steps.view(), some, read.data()).ok());
  ASSERT_TRUE(GatherColumn(nullptr, generations.view(), some, read_counts.data()).ok());
  EXPECT_EQ(read.Fetch(), (std::vector<int64_t>{10, -7, -9, 13, -7, 15}));
  EXPECT_EQ(read_counts.Fetch(), (std::vector<uint32_t>{20, 77, 22, 4'000'000'000, 77, 25}));
  EXPECT_EQ(Read(steps.view(), 0, 4), (std::vector<int64_t>{-9, -9, -9, 0}));
}

}  // namespace
}  // namespace sok
