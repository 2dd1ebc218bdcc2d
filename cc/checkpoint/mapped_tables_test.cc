// Tables whose weights are mapped have the rows of those that are read.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/testing/rewritten_checkpoint.h"
#include "cc/checkpoint/testing/saved_ranks.h"

namespace sok {
namespace {

namespace fs = std::filesystem;

class MappedTablesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        (fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name())
            .string();
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static TableOptions Options(int64_t dim) {
    TableOptions options;
    options.name = "items";
    options.dim = dim;
    options.initializer.seed = 7;
    return options;
  }
  // A table with rows of its own for each key.
  static Tables Filled(const TableOptions& options, const std::vector<int64_t>& keys, int ranks = 1) {
    const Tables tables = MakeTables(options, ranks);
    for (const auto& table : tables) {
      WhileHeld(table.get(), [&](HeldTable* held) {
        const KeyOwners owners = options.placement.owners(ranks);
        std::vector<int64_t> piece;
        const auto fill = [&](const RowsToFill& rows) {
          for (int64_t i = 0; i < rows.records.size(); ++i) {
            for (int64_t c = 0; c < options.dim; ++c) {
              rows.records[i][c] =
                  static_cast<float>(piece[static_cast<size_t>(i)] % 99991 + c) * 0.5f + 1.0f;
            }
          }
          return OkStatus();
        };
        for (size_t next = 0; next < keys.size();) {
          piece.clear();
          for (; next < keys.size() && static_cast<int64_t>(piece.size()) < held->max_rows_to_fill();
               ++next) {
            if (owners.Holds(held->options().rank, keys[next])) piece.push_back(keys[next]);
          }
          SOK_RETURN_IF_ERROR(held->FillRows(piece, RowParts(), fill));
        }
        return OkStatus();
      });
    }
    return tables;
  }
  static std::vector<int64_t> FirstKeys(int64_t count) {
    std::vector<int64_t> keys(static_cast<size_t>(count));
    std::iota(keys.begin(), keys.end(), int64_t{1});
    return keys;
  }
  static Status Assign(EngineTable* table, const std::vector<int64_t>& keys,
                       const std::vector<float>& values) {
    InlineExecutor executor;
    EngineMemory& memory = *EngineOfTests().memory;
    const EngineArray<int64_t> own_keys(memory, keys);
    const EngineArray<float> own_values(memory, values);
    return table->Assign(ContextOn(executor), own_keys.view(), own_values.data());
  }
  SaveRequest Request(uint64_t n, bool delta = false) const {
    SaveRequest request = NthSave(n, delta, &PosixFiles());
    request.prefix = folder_ + request.prefix;
    return request;
  }
  std::string DataFile(uint64_t n) const { return DataPath(Request(n).prefix, 0, 1); }
  static RestoreParts Parts(bool maps) {
    RestoreParts parts;
    parts.optimizer = false;
    parts.map_weights = maps;
    return parts;
  }
  StatusOr<Tables> Read(uint64_t n, const TableOptions& options, const RestoreParts& parts, int ranks = 1) {
    return Restore(PosixFiles(), Request(n).prefix, options.name, options, ranks, parts);
  }
  static int64_t MapsOf(const std::string& path) {
    std::ifstream maps("/proc/self/maps");
    int64_t count = 0;
    for (std::string line; std::getline(maps, line);) count += line.find(path) != std::string::npos ? 1 : 0;
    return count;
  }
  static bool EngineMaps() { return EngineOfTests().name == "cpu"; }
  static std::string BytesOf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  std::string folder_;
};

TEST_F(MappedTablesTest, RowsAreThoseOfATableThatIsRead) {
  for (const int64_t dim : {1, 3, 16, 33, 64}) {
    for (const int64_t rows : {0, 1, 70, 5000}) {
      SCOPED_TRACE(StrCat("dim ", dim, ", ", rows, " rows"));
      const Tables tables = Filled(Options(dim), FirstKeys(rows));
      fs::remove_all(folder_);
      ASSERT_TRUE(Save(tables, Request(1)).ok());
      const auto mapped = Read(1, Options(dim), Parts(true));
      ASSERT_TRUE(mapped.ok()) << mapped.status().message();
      const bool has_pages = EngineMaps() && rows * dim * 4 >= 64 << 10;
      if (rows * dim * 4 < 4096 || has_pages) {
        EXPECT_EQ(MapsOf(DataFile(1)) > 0, has_pages);
      }
      EXPECT_EQ(KeysOf(mapped.value()[0].get()), KeysOf(tables[0].get()));
      EXPECT_TRUE(StateOf(mapped.value()) == StateOf(tables));
    }
  }
}

TEST_F(MappedTablesTest, ATableOfSeveralSlabs) {
  const int64_t dim = 1030;
  // Kernels on the host are slow, and such tables are not mapped.
  const std::vector<int64_t> keys = FirstKeys(EngineOfTests().is_slow ? 100 : 9000);
  const Tables tables = Filled(Options(dim), keys);
  ASSERT_TRUE(Save(tables, Request(1)).ok());
  const Tables mapped = Read(1, Options(dim), Parts(true)).value();
  EXPECT_EQ(MapsOf(DataFile(1)) >= 3, EngineMaps());
  EXPECT_TRUE(StateOf(mapped) == StateOf(tables));
}

TEST_F(MappedTablesTest, ALoadWithoutACheckMaps) {
  const Tables tables = Filled(Options(16), FirstKeys(5000));
  ASSERT_TRUE(Save(tables, Request(1)).ok());
  OpenedCheckpoints opened(PosixFiles());
  auto opened_table = TableRestore::Open(opened, Request(1).prefix, "items", Options(16), Parts(true));
  const auto loaded = Load(opened_table.value().get());
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(MapsOf(DataFile(1)) > 0, EngineMaps());
  EXPECT_TRUE(StateOf({loaded.value()}) == StateOf(tables));
}

TEST_F(MappedTablesTest, ChangesDoNotReachTheFileOrOtherTables) {
  const std::vector<int64_t> keys = FirstKeys(5000);
  const Tables tables = Filled(Options(16), keys);
  ASSERT_TRUE(Save(tables, Request(1)).ok());
  const std::string saved = BytesOf(DataFile(1));
  const Tables mapped = Read(1, Options(16), Parts(true)).value();
  const Tables other = Read(1, Options(16), Parts(true)).value();
  const TableState before = StateOf(tables);
  // Changes rows, adds some, erases some, whose rows new keys get, and then gives all of them slots.
  std::vector<int64_t> others = {-5, 70000, 70001};
  for (int64_t key = 1; key <= 5000; key += 7) others.push_back(key);
  const std::vector<int64_t> erased = {2, 3, 4999};
  std::mt19937_64 random(3);
  for (const Tables& changed : {mapped, tables}) {
    random.seed(3);
    ASSERT_TRUE(Erase(changed[0].get(), erased).ok());
    ASSERT_TRUE(TrainOn(changed, "lazy_adam", kAdam, others, &random).ok());
    ASSERT_TRUE(TrainOn(changed, "lazy_adam", kAdam, {erased[0], 70005, 5000}, &random).ok());
  }
  EXPECT_TRUE(StateOf(mapped) == StateOf(tables));
  EXPECT_TRUE(StateOf(other) == before);
  EXPECT_TRUE(BytesOf(DataFile(1)) == saved);
}

TEST_F(MappedTablesTest, NewRowsFollowTheMappedOnes) {
  const Tables tables = Filled(Options(16), FirstKeys(1001));
  ASSERT_TRUE(Save(tables, Request(1)).ok());
  const Tables mapped = Read(1, Options(16), Parts(true)).value();
  std::vector<int64_t> more(3000);
  std::iota(more.begin(), more.end(), int64_t{1000});
  const std::vector<float> values(more.size() * 16, 0.75f);
  for (const Tables& changed : {mapped, tables}) ASSERT_TRUE(Assign(changed[0].get(), more, values).ok());
  EXPECT_EQ(MapsOf(DataFile(1)) > 0, EngineMaps());
  EXPECT_TRUE(StateOf(mapped) == StateOf(tables));
}

TEST_F(MappedTablesTest, IncrementsAreAppliedToMappedRows) {
  const std::vector<int64_t> keys = FirstKeys(5000);
  const Tables tables = Filled(Options(16), keys);
  std::mt19937_64 random(5);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, keys, &random).ok());
  ASSERT_TRUE(Save(tables, Request(1, true)).ok());
  const Tables follower = Read(1, Options(16), Parts(true)).value();
  for (uint64_t n = 2; n <= 3; ++n) {
    std::vector<int64_t> changed = {-1, static_cast<int64_t>(9000 + n)};
    for (int64_t key = static_cast<int64_t>(n); key < 5000; key += 100) changed.push_back(key);
    ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, changed, &random).ok());
    ASSERT_TRUE(Erase(tables[0].get(), {static_cast<int64_t>(n * 10), 3}).ok());
    ASSERT_TRUE(Save(tables, Request(n, true)).ok());
    ASSERT_TRUE(Follow(PosixFiles(), Request(n).prefix, "items", SaveId(n - 1), follower).ok());
    EXPECT_TRUE(StateOf(follower) == StateOf(Read(n, Options(16), Parts(false)).value()));
    EXPECT_TRUE(StateOf(follower) == StateOf(Read(n, Options(16), Parts(true)).value()));
    EXPECT_EQ(MapsOf(DataFile(1)) > 0, EngineMaps());
    EXPECT_EQ(MapsOf(DataFile(n)), 0) << "an increment has only some of the rows";
  }
}

TEST_F(MappedTablesTest, RemovedFilesStayReadable) {
  const Tables tables = Filled(Options(16), FirstKeys(5000));
  ASSERT_TRUE(Save(tables, Request(1)).ok());
  const Tables mapped = Read(1, Options(16), Parts(true)).value();
  fs::remove_all(folder_);
  EXPECT_TRUE(StateOf(mapped) == StateOf(tables));
}

TEST_F(MappedTablesTest, WhereRowsAreOtherwiseTheyAreRead) {
  TableOptions options = Options(16);
  const std::vector<int64_t> keys = FirstKeys(5000);
  Tables tables = Filled(options, keys);
  std::mt19937_64 random(3);
  ASSERT_TRUE(TrainOn(tables, "lazy_adam", kAdam, keys, &random).ok());
  ASSERT_TRUE(Save(tables, Request(1)).ok());
  RestoreParts all = Parts(true);
  all.optimizer = true;
  const Tables with_slots = Read(1, options, all).value();
  EXPECT_TRUE(StateOf(with_slots) == StateOf(tables));
  const Tables over_ranks = Read(1, options, Parts(true), 2).value();
  EXPECT_TRUE(StateOf(over_ranks).rows == StateOf(Read(1, options, Parts(false)).value()).rows);
  EXPECT_EQ(MapsOf(Request(1).prefix), 0);
  options.use_hashtable = false;
  options.capacity = 5001;
  tables = MakeTables(options, 1);
  ASSERT_TRUE(Save(tables, Request(2)).ok());
  EXPECT_TRUE(StateOf(Read(2, options, Parts(true)).value()) == StateOf(tables));
  EXPECT_EQ(MapsOf(Request(2).prefix), 0);
}

TEST_F(MappedTablesTest, EachRankMapsItsShard) {
  const TableOptions options = Options(16);
  const Tables tables = Filled(options, FirstKeys(9000), 2);
  ASSERT_TRUE(Save(tables, Request(1)).ok());
  const Tables mapped = Read(1, options, Parts(true), 2).value();
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(MapsOf(DataPath(Request(1).prefix, rank, 2)) > 0, EngineMaps());
  EXPECT_TRUE(StateOf(mapped) == StateOf(tables));
}

TEST_F(MappedTablesTest, DamagedWeightsAreAnError) {
  const Tables tables = Filled(Options(16), FirstKeys(5000));
  ASSERT_TRUE(Save(tables, Request(1)).ok());
  const PlacedArray values = SavedCheckpoint::Open(PosixFiles(), Request(1).prefix)
                                 .value()
                                 ->ReadTable("items")
                                 .value()
                                 .shards[0]
                                 .arrays.at("values");
  {
    std::fstream file(DataFile(1), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(values.offset + values.array.bytes() / 2);
    file.put('x');
  }
  OpenedCheckpoints opened(PosixFiles());
  auto opened_table = TableRestore::Open(opened, Request(1).prefix, "items", Options(16), Parts(true));
  TableRestore* const restore = opened_table.value().get();
  for (const Status& status : {restore->Check(), Load(restore).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("items#0/values' is damaged"), std::string::npos) << status.message();
  }
}

TEST_F(MappedTablesTest, AKeyThatOccursTwiceIsAnError) {
  // In different pieces, which are not compared with each other.
  std::vector<int64_t> keys = FirstKeys(70000);
  const Tables tables = Filled(Options(1), keys);
  ASSERT_TRUE(Save(tables, Request(1)).ok());
  RewrittenCheckpoint rewritten(PosixFiles(), Request(1).prefix);
  Manifest manifest = rewritten.ReadTable("items");
  std::string& bytes = rewritten.arrays.at("items#0/keys").bytes;
  bytes.replace(bytes.size() - 8, 8, bytes.substr(0, 8));
  rewritten.SetArray(&manifest, "items", 0, "keys", {"<i8", {70000}}, bytes);
  rewritten.SetTable("items", manifest);
  rewritten.Write();
  for (const bool maps : {false, true}) {
    const auto restored = Read(1, Options(1), Parts(maps));
    EXPECT_EQ(restored.status().code(), StatusCode::kDataLoss);
    EXPECT_NE(restored.status().message().find("occur twice"), std::string::npos)
        << restored.status().message();
  }
}

}  // namespace
}  // namespace sok
