#include "cc/table/record_layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "cc/base/testing/vector_levels.h"

namespace sok {
namespace {

constexpr FloatType kTypes[] = {FloatType::kFloat32, FloatType::kFloat16, FloatType::kBfloat16};
constexpr int64_t kDims[] = {1, 2, 3, 7, 16, 63, 64, 129};

// As LazyAdam, and with one second moment a row.
std::vector<SlotSpec> TwoMoments(int64_t dim) { return {{dim, 0.0f}, {dim, 0.0f}}; }
std::vector<SlotSpec> RowMoment(int64_t dim) { return {{dim, 0.5f}, {1, 2.0f, /*one_per_row=*/true}}; }

std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

float Rounded(FloatType type, float value) {
  switch (type) {
    case FloatType::kFloat16:
      return FromFloat16(ToFloat16(value));
    case FloatType::kBfloat16:
      return FromBfloat16(ToBfloat16(value));
    default:
      return value;
  }
}

// The numbers of `type` next to `value`, which is no such number, below and above it.
std::pair<float, float> Neighbors(FloatType type, float value) {
  const float nearest = Rounded(type, value);
  const auto next = [&](float number, bool up) {
    const uint16_t bits = type == FloatType::kFloat16 ? ToFloat16(number) : ToBfloat16(number);
    const auto moved = static_cast<uint16_t>(up == (number > 0) ? bits + 1 : bits - 1);
    return type == FloatType::kFloat16 ? FromFloat16(moved) : FromBfloat16(moved);
  };
  return nearest < value ? std::pair(nearest, next(nearest, true)) : std::pair(next(nearest, false), nearest);
}

TEST(RecordLayoutTest, BytesOfTheUsualRecords) {
  const auto bytes = [](FloatType rows, FloatType slots, std::vector<SlotSpec> specs,
                        Rounding rounding = Rounding::kStochastic) {
    return RecordLayout(64, RecordFormat{rows, slots, rounding}, specs).bytes();
  };
  const FloatType f32 = FloatType::kFloat32;
  const FloatType bf16 = FloatType::kBfloat16;
  EXPECT_EQ(bytes(f32, f32, TwoMoments(64)), 768);
  EXPECT_EQ(bytes(f32, f32, RowMoment(64)), 516);
  EXPECT_EQ(bytes(f32, bf16, TwoMoments(64)), 516);
  EXPECT_EQ(bytes(bf16, f32, TwoMoments(64)), 644);
  EXPECT_EQ(bytes(bf16, bf16, TwoMoments(64)), 388);
  EXPECT_EQ(bytes(bf16, bf16, RowMoment(64)), 264);
  EXPECT_EQ(bytes(bf16, bf16, RowMoment(64), Rounding::kNearest), 260);
  EXPECT_EQ(bytes(bf16, bf16, {}), 132);
  EXPECT_EQ(RecordLayout(64, RecordFormat{bf16, bf16}).bytes(), 128);
  EXPECT_EQ(RecordLayout(63, RecordFormat{bf16, f32}, TwoMoments(63)).bytes(), 128 + 2 * 252 + 4);
}

TEST(RecordLayoutTest, ReadsWhatItWroteAndNothingElseChanges) {
  for (const int64_t dim : kDims) {
    for (const FloatType rows : kTypes) {
      for (const FloatType slots : kTypes) {
        for (const Rounding rounding : {Rounding::kStochastic, Rounding::kNearest}) {
          const std::vector<SlotSpec> specs = RowMoment(dim);
          const RecordLayout layout(dim, RecordFormat{rows, slots, rounding, 5}, specs);
          ASSERT_EQ(layout.floats(), 2 * dim + 1);
          std::vector<uint64_t> memory(layout.bytes() / 8 + 2, 0xabababababababab);
          char* record = reinterpret_cast<char*>(memory.data());
          layout.SetKey(77, record);
          const std::vector<float> values = RandomFloats(layout.floats(), dim);
          layout.Write(values.data(), record);
          std::vector<float> read(layout.floats());
          layout.Read(record, read.data());
          for (int64_t c = 0; c < dim; ++c) {
            ASSERT_EQ(read[c], Rounded(rows, values[c]));
            ASSERT_EQ(read[dim + c], Rounded(slots, values[dim + c]));
          }
          ASSERT_EQ(read[2 * dim], values[2 * dim]) << "a slot of one number is float32";
          std::vector<float> weights(dim);
          layout.ReadWeights(record, weights.data());
          ASSERT_EQ(weights, std::vector<float>(read.begin(), read.begin() + dim));

          // Representable numbers stay in a step, whatever the noise.
          layout.WriteStep(read.data(), 3, {&record, 1});
          std::vector<float> again(layout.floats());
          layout.Read(record, again.data());
          ASSERT_EQ(again, read);

          layout.FillSlots(specs, record);
          layout.Read(record, again.data());
          for (int64_t c = 0; c < dim; ++c) {
            ASSERT_EQ(again[c], read[c]);
            ASSERT_EQ(again[dim + c], 0.5f);
          }
          ASSERT_EQ(again[2 * dim], 2.0f);
          for (int64_t i = layout.bytes(); i < static_cast<int64_t>(memory.size() * 8); ++i) {
            ASSERT_EQ(record[i], static_cast<char>(0xab)) << "wrote behind a record";
          }
        }
      }
    }
  }
}

// A step's record of one key.
std::vector<float> Stepped(const RecordLayout& layout, const std::vector<float>& values, int64_t key,
                           int64_t step) {
  std::vector<uint64_t> memory(layout.bytes() / 8 + 1);
  char* record = reinterpret_cast<char*>(memory.data());
  layout.SetKey(key, record);
  layout.WriteStep(values.data(), step, {&record, 1});
  std::vector<float> read(layout.floats());
  layout.Read(record, read.data());
  return read;
}

// Element by element, with the random bits of RoundingNoise.
TEST(RecordLayoutTest, SeveralRecordsAreRoundedAsTheDefinitionSays) {
  constexpr int64_t kRecords = 3;
  constexpr int64_t kStep = 7;
  for (const int64_t dim : kDims) {
    for (const FloatType rows : kTypes) {
      for (const FloatType slots : kTypes) {
        const RecordLayout layout(dim, RecordFormat{rows, slots, Rounding::kStochastic, 5}, RowMoment(dim));
        if (layout.is_plain()) continue;
        const int64_t stride = layout.unpacked_stride();
        ASSERT_GE(stride, layout.floats());
        std::vector<float> values = RandomFloats(kRecords * stride, dim);
        values[0] = std::nanf("");
        values[stride] = -INFINITY;
        values[2 * stride] = std::numeric_limits<float>::max();
        for (const VectorLevel level : VectorLevels()) {
          const WithVectorLevel with_level(level);
          std::vector<std::vector<uint32_t>> memory(kRecords, std::vector<uint32_t>(layout.bytes() / 4));
          std::vector<char*> records;
          for (std::vector<uint32_t>& record : memory) {
            records.push_back(reinterpret_cast<char*>(record.data()));
            layout.SetKey(static_cast<int64_t>(records.size()), records.back());
          }
          layout.WriteStep(values.data(), kStep, records);
          std::vector<float> read(kRecords * stride);
          layout.Read(std::vector<const char*>(records.begin(), records.end()), read.data());
          for (int64_t r = 0; r < kRecords; ++r) {
            const uint64_t stream = memory[r].back();
            const auto base = static_cast<uint32_t>(Mix64((stream << 32) + kStep));
            for (int64_t i = 0; i < layout.floats(); ++i) {
              const FloatType type = i < dim ? rows : i < 2 * dim ? slots : FloatType::kFloat32;
              const float value = values[r * stride + i];
              const uint32_t noise = RoundingNoise(base, static_cast<uint32_t>(i));
              const float expected = type == FloatType::kFloat32   ? value
                                     : type == FloatType::kFloat16 ? FromFloat16(ToFloat16(value, noise))
                                                                   : FromBfloat16(ToBfloat16(value, noise));
              const float actual = read[r * stride + i];
              ASSERT_TRUE(actual == expected || (std::isnan(actual) && std::isnan(expected)))
                  << dim << ": " << value << " became " << actual << ", not " << expected;
            }
          }
        }
      }
    }
  }
}

TEST(RecordLayoutTest, StepsRoundToNeighborsAndAreExactOnAverage) {
  constexpr int64_t kDim = 16;
  for (const FloatType type : {FloatType::kFloat16, FloatType::kBfloat16}) {
    const RecordLayout layout(kDim, RecordFormat{type, type}, TwoMoments(kDim));
    const std::vector<float> values = RandomFloats(layout.floats(), 3);
    std::vector<double> sums(values.size());
    constexpr int kTries = 4000;
    for (int i = 0; i < kTries; ++i) {
      const std::vector<float> read = Stepped(layout, values, /*key=*/i / 50, /*step=*/i % 50);
      for (size_t c = 0; c < values.size(); ++c) {
        const auto [below, above] = Neighbors(type, values[c]);
        ASSERT_TRUE(read[c] == below || read[c] == above) << values[c] << " became " << read[c];
        sums[c] += read[c];
      }
    }
    for (size_t c = 0; c < values.size(); ++c) {
      const auto [below, above] = Neighbors(type, values[c]);
      // Five standard deviations of the mean, which are at most half of the distance between neighbors each.
      const double bound = 5 * 0.5 * (above - below) / std::sqrt(kTries);
      EXPECT_NEAR(sums[c] / kTries, values[c], bound) << c;
    }
  }
}

TEST(RecordLayoutTest, RandomBitsDependOnSeedKeyStepAndColumnOnly) {
  constexpr int64_t kDim = 64;
  const auto layout = [](uint64_t seed) {
    return RecordLayout(kDim,
                        RecordFormat{FloatType::kBfloat16, FloatType::kBfloat16, Rounding::kStochastic, seed},
                        TwoMoments(kDim));
  };
  const std::vector<float> values(3 * kDim, 1.003f);
  const std::vector<float> one = Stepped(layout(1), values, 10, 20);
  EXPECT_EQ(Stepped(layout(1), values, 10, 20), one);
  const std::vector<float> others[] = {Stepped(layout(2), values, 10, 20), Stepped(layout(1), values, 11, 20),
                                       Stepped(layout(1), values, 10, 21)};
  for (const std::vector<float>& other : others) {
    int same = 0;
    for (size_t c = 0; c < values.size(); ++c) same += other[c] == one[c] ? 1 : 0;
    // 192 numbers, each the same with probability 0.53: within five standard deviations.
    EXPECT_GT(same, 60);
    EXPECT_LT(same, 140);
  }
  // Neither are all columns rounded alike, nor weights as their slots.
  EXPECT_NE(std::vector<float>(one.begin(), one.begin() + kDim),
            std::vector<float>(one.begin() + kDim, one.begin() + 2 * kDim));
  EXPECT_EQ(std::set<float>(one.begin(), one.begin() + kDim).size(), 2u);
}

TEST(RecordLayoutTest, NearestTakesNoRandomBits) {
  const RecordLayout layout(64, RecordFormat{FloatType::kBfloat16, FloatType::kFloat32, Rounding::kNearest},
                            TwoMoments(64));
  const std::vector<float> values = RandomFloats(layout.floats(), 8);
  const std::vector<float> read = Stepped(layout, values, 1, 2);
  EXPECT_EQ(Stepped(layout, values, 3, 4), read);
  for (int64_t c = 0; c < 64; ++c) EXPECT_EQ(read[c], Rounded(FloatType::kBfloat16, values[c]));
}

}  // namespace
}  // namespace sok
