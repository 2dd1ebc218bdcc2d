// Tables that keep rows or slots in 16 bits.
#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "cc/base/hash.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/optimizers/testing/trained_rows.h"
#include "cc/cpu/table/testing/test_table.h"
#include "cc/engine/engine_table.h"
#include "cc/optimizers/rule_info.h"

namespace sok {
namespace {

constexpr FloatType kBf16 = FloatType::kBfloat16;
constexpr FloatType kF16 = FloatType::kFloat16;
constexpr FloatType kF32 = FloatType::kFloat32;
constexpr RecordFormat kFormats[] = {{kBf16, kBf16}, {kBf16, kF32}, {kF16, kF32},
                                     {kF32, kBf16},  {kF16, kBf16}, {kBf16, kBf16, Rounding::kNearest}};

float RoundedInStep(FloatType type, float value, bool stochastic, uint32_t base, uint32_t index) {
  const uint32_t noise = RoundingNoise(base, index);
  if (type == kF16) return FromFloat16(stochastic ? ToFloat16(value, noise) : ToFloat16(value));
  if (type == kBf16) return FromBfloat16(stochastic ? ToBfloat16(value, noise) : ToBfloat16(value));
  return value;
}

// The floats of a key's record after a step with gradient `g`: the step in float32 on a row alone, rounded
// number by number.
std::vector<float> SteppedReference(const TableOptions& options, const RuleInfo& rule, int64_t key,
                                    int64_t step, const std::vector<float>& record,
                                    const std::vector<float>& g) {
  const std::vector<float>& hyper = rule.samples[0];
  TrainedRows alone(rule.name, 1, options.dim, hyper);
  std::copy(record.begin(), record.end(), alone.store().weights(0));
  InlineExecutor executor;
  alone.Step(executor, hyper, {0}, g);
  std::vector<float> result = alone.Record(0);
  const uint64_t stream = Mix64(static_cast<uint64_t>(key) ^ RecordFormatOf(options).seed) >> 32;
  const auto base = static_cast<uint32_t>(Mix64((stream << 32) + static_cast<uint64_t>(step)));
  const bool stochastic = options.record.rounding == Rounding::kStochastic;
  size_t rounded = options.dim;
  for (const RuleSlot& slot : rule.slots) rounded += slot.one_per_row ? 0 : options.dim;
  for (size_t p = 0; p < rounded; ++p) {
    const bool is_weight = static_cast<int64_t>(p) < options.dim;
    result[p] = RoundedInStep(is_weight ? options.record.weights : options.record.slots, result[p],
                              stochastic, base, static_cast<uint32_t>(p));
  }
  return result;
}

std::vector<float> RecordOf(const Table& table, int64_t row) {
  std::vector<float> floats(table.layout().floats());
  table.ReadRecord(row, floats.data());
  return floats;
}

TableOptions OptionsOf(int64_t dim, const RecordFormat& format) {
  TableOptions options = TestOptions(dim);
  options.record = format;
  return options;
}

void CheckSteps(const RuleInfo& rule, int64_t dim, const RecordFormat& format, int threads) {
  const TableOptions options = OptionsOf(dim, format);
  const std::unique_ptr<Table> table = MakeTestTable(options);
  ThreadPool pool(threads, /*min_block_ns=*/0);
  const EngineContext context{pool};
  std::mt19937_64 random(dim + threads);
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < 30; ++i) keys.push_back(i * 1'000'003 - 7);
  for (int step = 0; step < 4; ++step) {
    // Keys become rows little by little, the first ones before there is an optimizer.
    const std::vector<int64_t> known(keys.begin(), keys.begin() + 12 + 6 * step);
    const std::vector<int64_t> rows = RowsOf(table.get(), known);
    const RandomStep batch = MakeRandomStep(static_cast<int64_t>(rows.size()), dim, 0.7, &random);
    std::vector<std::vector<float>> expected;
    for (size_t i = 0; i < rows.size(); ++i) {
      expected.push_back(RecordOf(*table, rows[i]));
      if (step == 0) {  // the slots that the first step makes
        for (const SlotSpec& slot : rule.Slots(dim, rule.samples[0])) {
          expected.back().insert(
              expected.back().end(), slot.width,
              slot.one_per_row ? slot.fill : RoundedInStep(format.slots, slot.fill, false, 0, 0));
        }
      }
    }
    std::vector<int64_t> touched;
    for (size_t i = 0; i < batch.rows.size(); ++i) {
      const int64_t at = batch.rows[i];
      touched.push_back(rows[at]);
      const std::vector<float> g(batch.grads.begin() + i * dim, batch.grads.begin() + (i + 1) * dim);
      expected[at] = SteppedReference(options, rule, known[at], step, expected[at], g);
    }
    const Status status = table->ApplyGradients(context, rule.name, rule.samples[0], touched,
                                                batch.grads.data(), /*distinct=*/true);
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(RecordOf(*table, rows[i]), expected[i])
          << rule.name << ", dim " << dim << ", step " << step << ", key " << known[i];
    }
  }
}

TEST(RecordTypesTest, EachStepIsTheOneInFloat32RoundedOnce) {
  for (const RuleInfo* rule : KnownRules()) {
    if (rule->untouched != UntouchedRows::kStay) continue;
    for (const RecordFormat& format : kFormats) {
      for (const int64_t dim : {1, 2, 3, 7, 16, 63, 64}) CheckSteps(*rule, dim, format, 1 + dim % 4);
    }
  }
}

TEST(RecordTypesTest, RecordsOfAnyLength) {
  for (const char* name : {"sgd", "lazy_adam", "rowwise_adam"}) {
    for (const int64_t dim : {129, 1025, 6000, 20000}) {
      CheckSteps(*FindRule(name).value(), dim, {kBf16, kBf16}, 3);
    }
  }
}

TEST(RecordTypesTest, InitialRowsAndAssignedRowsAreRoundedToNearest) {
  for (const RecordFormat& format : kFormats) {
    for (const bool hashed : {true, false}) {
      TableOptions options = OptionsOf(5, format);
      options.use_hashtable = hashed;
      if (!hashed) options.capacity = 40;
      const std::unique_ptr<Table> table = MakeTestTable(options);
      const std::vector<int64_t> keys = {3, 8, 21};
      const std::vector<int64_t> rows = RowsOf(table.get(), keys);
      InlineExecutor executor;
      const std::vector<float> assigned = {0.1f, -0.2f, 3.3f, 1e-3f, 70.7f};
      ASSERT_TRUE(table->Assign({executor}, std::vector<int64_t>{8}, assigned.data()).ok());
      for (size_t i = 0; i < keys.size(); ++i) {
        std::vector<float> expected = i == 1 ? assigned : InitialWeights(*table, keys[i]);
        for (float& value : expected) value = RoundedInStep(format.weights, value, false, 0, 0);
        ASSERT_EQ(RecordOf(*table, rows[i]), expected) << i;
      }
    }
  }
}

TEST(RecordTypesTest, OptimizersThatCatchUpAreRefused) {
  const std::unique_ptr<Table> table = MakeTestTable(OptionsOf(4, {kBf16, kF32}));
  RowsOf(table.get(), {1});
  InlineExecutor executor;
  const std::vector<float> gradient(4, 1.0f);
  for (const RuleInfo* rule : KnownRules()) {
    if (rule->untouched == UntouchedRows::kStay) continue;
    const Status status = table->ApplyGradients({executor}, rule->name, rule->samples[0],
                                                std::vector<int64_t>{0}, gradient.data(), true);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << rule->name;
    ExpectMentions(status, {"'table'", "'" + rule->name + "'", "16 bits"});
  }
  EXPECT_EQ(table->optimizer_name(), "");
}

TEST(RecordTypesTest, BytesAreThoseOfTheLayout) {
  const auto bytes_before_and_after = [](const RecordFormat& format, const char* optimizer) {
    const std::unique_ptr<Table> table = MakeTestTable(OptionsOf(64, format));
    InlineExecutor executor;
    const RuleInfo& rule = *FindRule(optimizer).value();
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < 1000; ++key) keys.push_back(key);
    const std::vector<int64_t> rows = RowsOf(table.get(), keys);
    const int64_t before = table->bytes();
    const std::vector<float> gradient(64, 1.0f);
    EXPECT_TRUE(table
                    ->ApplyGradients({executor}, rule.name, rule.samples[0], std::vector<int64_t>{0},
                                     gradient.data(), true)
                    .ok());
    return std::pair(before, table->bytes());
  };
  // Rows are made ahead of their use, so what the slots add tells their number.
  const auto [plain_before, plain] = bytes_before_and_after({}, "lazy_adam");
  const auto [packed_before, packed] = bytes_before_and_after({kBf16, kBf16}, "rowwise_adam");
  const int64_t rows = (plain - plain_before) / (768 - 256);
  EXPECT_GE(rows, 1000);
  EXPECT_EQ(plain - plain_before, rows * (768 - 256));
  EXPECT_EQ(packed - packed_before, rows * (264 - 128));
}

}  // namespace
}  // namespace sok
