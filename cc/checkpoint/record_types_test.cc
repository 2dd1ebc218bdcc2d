// Checkpoints of tables that keep rows and slots in 16 bits: files have the same types, and a restore into
// other types converts.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/testing/memory_saves.h"
#include "cc/checkpoint/testing/rewritten_checkpoint.h"
#include "cc/optimizers/testing/rule_cases.h"

namespace sok {
namespace {

constexpr RecordFormat kNarrow[] = {{FloatType::kBfloat16, FloatType::kBfloat16},
                                    {FloatType::kFloat16, FloatType::kFloat32},
                                    {FloatType::kFloat32, FloatType::kBfloat16},
                                    {FloatType::kBfloat16, FloatType::kFloat32, Rounding::kNearest}};

// Rules that take all their steps at once, with and without slots of one number a row.
std::vector<RuleCase> Cases() {
  std::vector<RuleCase> cases;
  for (const RuleCase& one : OneCasePerRule()) {
    if (one.rule().untouched == UntouchedRows::kStay) cases.push_back(one);
  }
  return cases;
}

RuleCase CaseOf(const std::string& name) {
  for (const RuleCase& one : OneCasePerRule()) {
    if (one.name == name) return one;
  }
  return {};
}

float Rounded(float value, FloatType type) {
  if (type == FloatType::kFloat32) return value;
  return type == FloatType::kFloat16 ? FromFloat16(ToFloat16(value)) : FromBfloat16(ToBfloat16(value));
}

// The rows of a state with weights, and slots as wide as they are, of other types.
TableState Converted(TableState state, int64_t dim, const RecordFormat& format) {
  for (auto& [key, row] : state.rows) {
    std::vector<float>& floats = std::get<0>(row);
    for (size_t i = 0; i < floats.size(); ++i) {
      const bool is_weight = static_cast<int64_t>(i) < dim;
      const bool is_wide =
          static_cast<int64_t>(i / static_cast<size_t>(dim) + 1) * dim <= static_cast<int64_t>(floats.size());
      if (is_weight || is_wide) floats[i] = Rounded(floats[i], is_weight ? format.weights : format.slots);
    }
  }
  return state;
}

class RecordTypesTest : public MemorySavesTest {
 protected:
  // Other engines refuse such tables, which their own tests show.
  static bool EngineHasThem() { return EngineOfTests().name == "cpu"; }
  static TableOptions OptionsOf(const RecordFormat& format, int64_t dim = 3) {
    TableOptions options = Options(dim);
    options.record = format;
    return options;
  }
  static Tables Trained(const TableOptions& options, int ranks, const RuleCase& rule, std::mt19937_64* random,
                        const std::vector<int64_t>& keys = SomeKeys()) {
    Tables tables = MakeTables(options, ranks);
    for (int t = 0; t < 4; ++t) {
      EXPECT_TRUE(TrainOnSome(tables, rule.name, rule.hyper, keys, 0.6, random).ok());
    }
    return tables;
  }
  // The type of an array in the files.
  std::string DtypeOfArray(const SaveRequest& request, const std::string& array) {
    const auto checkpoint = SavedCheckpoint::Open(files_, request.prefix).value();
    return checkpoint->Find(ArrayEntry(Options().name, 0, array)).value().dtype;
  }
  std::vector<std::string> NoticesFor(const SaveRequest& request, const TableOptions& options,
                                      const RestoreParts& parts = RestoreParts()) {
    OpenedCheckpoints opened(files_);
    const auto restore = TableRestore::Open(opened, request.prefix, options.name, options, parts);
    EXPECT_TRUE(restore.ok()) << restore.status().message();
    return restore.value()->notices();
  }
};

TEST_F(RecordTypesTest, EveryOptimizerContinuesBitForBit) {
  if (!EngineHasThem()) return;
  uint64_t n = 0;
  for (const RecordFormat& format : kNarrow) {
    for (const RuleCase& rule : Cases()) {
      SCOPED_TRACE(StrCat(rule.name, " ", NameOf(format.weights), " ", NameOf(format.slots)));
      const int64_t dim = n % 3 == 0 ? 1 : n % 3 == 1 ? 3 : 64;
      std::mt19937_64 random(n);
      const Tables tables = Trained(OptionsOf(format, dim), 2, rule, &random);
      const SaveRequest request = Request(++n);
      const std::string name = MustSave(tables, request);
      EXPECT_EQ(DtypeOfArray(request, "values"), DtypeOf(format.weights));
      EXPECT_TRUE(NoticesFor(request, OptionsOf(format, dim)).empty());
      const Tables restored = MustRestore(request, name, OptionsOf(format, dim), 2);
      EXPECT_TRUE(StateOf(restored) == StateOf(tables));
      std::mt19937_64 again = random;
      for (const Tables& both : {tables, restored}) {
        std::mt19937_64 same = again;
        ASSERT_TRUE(TrainOnSome(both, rule.name, rule.hyper, SomeKeys(), 0.6, &same).ok());
      }
      EXPECT_TRUE(StateOf(restored) == StateOf(tables)) << "after more steps";
    }
  }
}

TEST_F(RecordTypesTest, SlotsOfOneNumberARowStayFloat32) {
  if (!EngineHasThem()) return;
  const TableOptions options = OptionsOf(kNarrow[0], 1);
  std::mt19937_64 random(1);
  const Tables tables = Trained(options, 1, CaseOf("rowwise_adam"), &random);
  const SaveRequest request = Request(1);
  MustSave(tables, request);
  EXPECT_EQ(DtypeOfArray(request, "slot-m"), "bfloat16");
  EXPECT_EQ(DtypeOfArray(request, "slot-v"), "<f4");
  EXPECT_EQ(ReadManifest(request).table.options.record.slots, FloatType::kBfloat16);
}

TEST_F(RecordTypesTest, AnyNumberOfRanksReadsManyBlocks) {
  if (!EngineHasThem()) return;
  // Rows that the ends of blocks divide, in the file and in memory.
  const TableOptions options = OptionsOf(kNarrow[0], 33);
  std::mt19937_64 random(2);
  const Tables tables = Trained(options, 2, CaseOf("lazy_adam"), &random, DistinctIds(70000, 9));
  const SaveRequest request = Request(1);
  const std::string name = MustSave(tables, request);
  for (const int ranks : {1, 2, 3, 4}) {
    EXPECT_TRUE(StateOf(MustRestore(request, name, options, ranks)) == StateOf(tables)) << ranks;
  }
}

TEST_F(RecordTypesTest, FilesOf16BitsAreHalfAsLarge) {
  if (!EngineHasThem()) return;
  const auto bytes_with = [&](const RecordFormat& format) {
    files_.RemoveAll();
    std::mt19937_64 random(3);
    MustSave(Trained(OptionsOf(format, 64), 1, CaseOf("lazy_adam"), &random, DistinctIds(3000, 4)),
             Request(1));
    int64_t bytes = 0;
    for (const auto& [path, content] : files_.AllFiles()) bytes += static_cast<int64_t>(content->size());
    return static_cast<double>(bytes);
  };
  EXPECT_NEAR(bytes_with(kNarrow[0]) / bytes_with(RecordFormat()), 0.5, 0.02);
}

TEST_F(RecordTypesTest, ARestoreIntoAnotherTypeConvertsAndSaysSo) {
  if (!EngineHasThem()) return;
  const RecordFormat formats[] = {RecordFormat(), kNarrow[0], kNarrow[1], kNarrow[2]};
  for (const char* const optimizer : {"lazy_adam", "rowwise_adam"}) {
    for (const RecordFormat& from : formats) {
      files_.RemoveAll();
      std::mt19937_64 random(5);
      const Tables tables = Trained(OptionsOf(from), 2, CaseOf(optimizer), &random);
      const SaveRequest request = Request(1);
      const std::string name = MustSave(tables, request);
      for (const RecordFormat& to : formats) {
        SCOPED_TRACE(StrCat(optimizer, " ", NameOf(from.weights), " ", NameOf(from.slots), " to ",
                            NameOf(to.weights), " ", NameOf(to.slots)));
        const Tables restored = MustRestore(request, name, OptionsOf(to), 3);
        EXPECT_TRUE(StateOf(restored) == Converted(StateOf(tables), 3, to));
        const size_t slots = from.slots == to.slots ? 0 : CaseOf(optimizer).rule().slots.size();
        const size_t wide = optimizer == std::string("lazy_adam") || slots == 0 ? slots : slots - 1;
        EXPECT_EQ(NoticesFor(request, OptionsOf(to)).size(), wide + (from.weights == to.weights ? 0 : 1));
      }
    }
  }
}

TEST_F(RecordTypesTest, NoticesNameVariableFileAndTypes) {
  if (!EngineHasThem()) return;
  std::mt19937_64 random(6);
  MustSave(Trained(OptionsOf(kNarrow[1]), 1, CaseOf("adagrad"), &random), Request(1));
  const std::vector<std::string> notices = NoticesFor(Request(1), OptionsOf(kNarrow[0]));
  ASSERT_EQ(notices.size(), 2u);
  const std::string start = "Embedding variable 'scope/items' converts the ";
  const std::string of = StrCat(" of '", Request(1).prefix, ".index:scope/items' from ");
  EXPECT_EQ(notices[0], start + "rows" + of + "float16 to bfloat16, rounded to nearest");
  EXPECT_EQ(notices[1], start + "slot 'accumulator'" + of + "float32 to bfloat16, rounded to nearest");
  RestoreParts weights;
  weights.optimizer = false;
  const std::vector<std::string> of_weights = NoticesFor(Request(1), Options(), weights);
  ASSERT_EQ(of_weights.size(), 1u);
  EXPECT_EQ(of_weights[0], start + "rows" + of + "float16 to float32");
}

TEST_F(RecordTypesTest, ChainsAndCompaction) {
  if (!EngineHasThem()) return;
  for (const RecordFormat& format : kNarrow) {
    files_.RemoveAll();
    const TableOptions options = OptionsOf(format);
    std::mt19937_64 random(7);
    const Tables tables = MakeTables(options, 2);
    const RuleCase rule = CaseOf("lazy_adam");
    for (int n = 1; n <= 3; ++n) {
      for (int t = 0; t < 3; ++t) {
        ASSERT_TRUE(TrainOnSome(tables, rule.name, rule.hyper, SomeKeys(), 0.2, &random).ok());
      }
      const std::string name = MustSave(tables, Request(n, true));
      EXPECT_EQ(IsDelta(Request(n)), n > 1);
      EXPECT_EQ(DtypeOfArray(Request(n), "slot-m"), DtypeOf(format.slots));
      EXPECT_TRUE(StateOf(MustRestore(Request(n), name, options, 3)) == StateOf(tables));
    }
    ASSERT_TRUE(Compact(Request(3).prefix, Request(4)).ok());
    EXPECT_FALSE(IsDelta(Request(4)));
    EXPECT_EQ(DtypeOfArray(Request(4), "values"), DtypeOf(format.weights));
    EXPECT_EQ(DtypeOfArray(Request(4), "slot-v"), DtypeOf(format.slots));
    EXPECT_TRUE(StateOf(MustRestore(Request(4), options.name, options, 2)) == StateOf(tables));
  }
}

TEST_F(RecordTypesTest, AnIncrementOfAnotherTypeIsRefused) {
  if (!EngineHasThem()) return;
  const TableOptions options = OptionsOf(kNarrow[0]);
  const Tables tables = MakeTables(options, 1);
  std::mt19937_64 random(11);
  for (int n = 1; n <= 2; ++n) {
    ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, {1, 2}, &random).ok());
    MustSave(tables, Request(n, true));
  }
  ASSERT_TRUE(IsDelta(Request(2)));
  RewrittenCheckpoint full(files_, Request(1).prefix);
  Manifest manifest = full.ReadTable(options.name);
  manifest.table.options.record = RecordFormat();
  full.SetArray(&manifest, options.name, 0, "values", {"<f4", {2, 3}}, std::string(24, '\0'));
  full.SetTable(options.name, manifest);
  full.Write();
  const Status status = Restore(Request(2).prefix, options.name, options, 1, Parts()).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("is of another table than"), std::string::npos) << status.message();
}

TEST_F(RecordTypesTest, DamageOfAnyArrayIsFound) {
  if (!EngineHasThem()) return;
  const TableOptions options = OptionsOf(kNarrow[0], 40);
  std::mt19937_64 random(8);
  MustSave(Trained(options, 1, CaseOf("lazy_adam"), &random, DistinctIds(30000, 3)), Request(1));
  const auto checkpoint = SavedCheckpoint::Open(files_, Request(1).prefix).value();
  for (const char* const array : {"values", "slot-m", "slot-v"}) {
    const TensorPlace place = checkpoint->Find(ArrayEntry(options.name, 0, array)).value();
    ASSERT_GT(place.bytes, kBlockBytes);
    std::string& file = *files_.AllFiles().at(checkpoint->DataFile(place.shard));
    for (const int64_t at : {int64_t{0}, kBlockBytes, place.bytes - 1}) {
      file[static_cast<size_t>(place.offset + at)] ^= 1;
      const Status status = Restore(Request(1).prefix, options.name, options, 1, Parts()).status();
      file[static_cast<size_t>(place.offset + at)] ^= 1;
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << array;
      EXPECT_NE(status.message().find(ArrayEntry(options.name, 0, array)), std::string::npos)
          << status.message();
    }
  }
}

TEST_F(RecordTypesTest, GivenInitialRowsAndRowsThatMayBeMapped) {
  if (!EngineHasThem()) return;
  TableOptions options = OptionsOf(kNarrow[0], 16);
  options.initializer = Initializer(InitializerKind::kGiven, 0.0f, 0.0f, 9, /*rows=*/2);
  for (int i = 0; i < 32; ++i) options.initial_rows.push_back(0.1f * static_cast<float>(i));
  const Tables tables = MakeTables(options, 1);
  std::mt19937_64 random(9);
  ASSERT_TRUE(TrainOn(tables, "sgd", {0.1f}, DistinctIds(5000, 2), &random).ok());
  const std::string name = MustSave(tables, Request(1));
  EXPECT_EQ(DtypeOfArray(Request(1), "initial_rows"), "bfloat16");
  TableOptions without = options;
  without.initial_rows.clear();
  RestoreParts parts;
  parts.optimizer = false;
  parts.map_weights = true;
  for (const RecordFormat& format : {kNarrow[0], RecordFormat()}) {
    without.record = format;
    const Tables restored = Restore(Request(1).prefix, name, without, 1, parts).value();
    const TableState saved = StateOf(tables);
    TableState found = StateOf(restored);
    found.optimizer = saved.optimizer;
    found.optimizer_steps = saved.optimizer_steps;
    EXPECT_TRUE(found == saved);
    for (int i = 0; i < 32; ++i) {
      EXPECT_EQ(restored[0]->options().initial_rows[static_cast<size_t>(i)],
                Rounded(0.1f * static_cast<float>(i), FloatType::kBfloat16));
    }
  }
}

}  // namespace
}  // namespace sok
