// Pieces are copied and padded, and nothing else is written.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cc/cpu/pooling/vector_math.h"
#include "cc/lookup/divisor.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/sharded/message_kernels.h"
#include "cuda/sharded/served_ids.h"

namespace sok {
namespace {

constexpr int kUnwritten = -77;

// Pieces of these lengths plus `pad` elements of padding each, one element apart, in random order.
template <typename T>
void ExpectCopies(const std::vector<int64_t>& lengths, int64_t pad) {
  int64_t total = 1;
  for (const int64_t length : lengths) total += length + pad + 1;
  std::vector<T> from(static_cast<size_t>(total));
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<T>(3 * i + 1);
  std::vector<T> expected(from.size(), T{kUnwritten});
  DeviceArray<T> device_from(from);
  DeviceArray<T> device_to(expected);
  std::vector<CopiedPiece<T>> pieces;
  int64_t at = 1;
  for (const int64_t length : lengths) {
    // A position in the source that differs from that in the destination.
    const int64_t source = total - at - length;
    pieces.push_back({device_from.data() + source, device_to.data() + at, length, length + pad});
    for (int64_t i = 0; i < length + pad; ++i) expected[at + i] = i < length ? from[source + i] : T{0};
    at += length + pad + 1;
  }
  AsyncAllocator allocator;
  StagedUpload upload;
  ASSERT_TRUE(CopyPieces(nullptr, &allocator, &upload, Span<const CopiedPiece<T>>(pieces)).ok());
  ASSERT_EQ(device_to.Fetch(), expected);
}

template <typename T>
void ExpectCopiesOfAllSizes() {
  const std::vector<std::vector<int64_t>> sizes = {
      {}, {0}, {1}, {0, 0, 1, 0}, {4, 4, 8, 4}, {1023, 1024, 1025, 0, 2, 2048}, std::vector<int64_t>(300, 3)};
  for (const std::vector<int64_t>& lengths : sizes) {
    for (const int64_t pad : {0, 1}) ExpectCopies<T>(lengths, pad);
  }
}

TEST(CopyPiecesTest, Words) { ExpectCopiesOfAllSizes<int64_t>(); }

TEST(CopyPiecesTest, Numbers) { ExpectCopiesOfAllSizes<int32_t>(); }

constexpr GradientFormat kFormats[] = {GradientFormat::kFloat16, GradientFormat::kBfloat16};

// Floats of all exponents, halfway cases and neighbours of bounds.
std::vector<float> Floats() {
  std::vector<float> values = {0.0f, -0.0f, 65504.0f, 65519.9f, 65520.0f, -65536.0f, 5.9604645e-8f, 2.98e-8f};
  for (const float special : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()}) {
    values.push_back(special);
    values.push_back(-special);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    uint32_t bits = static_cast<uint32_t>(random());
    if (i % 3 == 0) bits &= 0xffffe000u;  // even or halfway in 16 bits
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    values.push_back(value);
  }
  return values;
}

TEST(GradientWordsTest, EncodesAsTheCpu) {
  const std::vector<float> values = Floats();
  const auto n = static_cast<int64_t>(values.size());
  DeviceArray<float> device_values(values);
  for (const GradientFormat format : kFormats) {
    std::vector<uint16_t> expected(values.size() + 1, 7);
    EncodeGradients(format, values.data(), n, expected.data() + 1);
    DeviceArray<uint16_t> encoded(std::vector<uint16_t>(values.size() + 1, 7));
    // In two parts, the second one of which begins anywhere.
    const EncodedGradients parts[] = {
        {format, device_values.data(), encoded.data() + 1, 300},
        {format, device_values.data() + 300, encoded.data() + 301, n - 300},
        {format, nullptr, nullptr, 0},
    };
    ASSERT_TRUE(EnqueueEncoding(nullptr, Span<const EncodedGradients>(parts, 3)).ok());
    EXPECT_EQ(encoded.Fetch(), expected);
  }
}

TEST(GradientWordsTest, DecodesAsTheCpu) {
  // Every 13th number: all exponents, and both signs.
  std::vector<uint16_t> encoded;
  for (uint32_t bits = 0; bits < 1u << 16; bits += 13) encoded.push_back(static_cast<uint16_t>(bits));
  const auto n = static_cast<int64_t>(encoded.size());
  DeviceArray<uint16_t> device_encoded(encoded);
  for (const GradientFormat format : kFormats) {
    std::vector<float> expected(encoded.size());
    DecodeGradients(format, encoded.data(), n, expected.data());
    DeviceArray<float> values(std::vector<float>(encoded.size(), 7.0f));
    const DecodedGradients parts[] = {
        {format, device_encoded.data(), values.data(), 1000},
        {format, device_encoded.data() + 1000, values.data() + 1000, n - 1000},
    };
    ASSERT_TRUE(EnqueueDecoding(nullptr, Span<const DecodedGradients>(parts, 2)).ok());
    EXPECT_EQ(BitsOf(values.Fetch()), BitsOf(expected));
  }
}

constexpr Combiner kCombiners[] = {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN};
constexpr int64_t kDims[] = {1, 2, 3, 4, 7, 16, 31, 33, 100};

std::vector<float> RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-1.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = value(random);
  return values;
}

// Bags of no id, of one, of up to nine, whose sums are multiplied by the inverse, and of more.
std::vector<int32_t> BagBegins() {
  std::vector<int32_t> begin = {17};
  for (const int32_t length : {0, 1, 2, 3, 9, 10, 11, 0, 300}) begin.push_back(begin.back() + length);
  return begin;
}

TEST(SummedBagsTest, DividesAsTheCpu) {
  const std::vector<int32_t> begin = BagBegins();
  const auto bags = static_cast<int64_t>(begin.size()) - 1;
  DeviceArray<int32_t> device_begin(begin);
  for (const int64_t dim : kDims) {
    for (const Combiner combiner : kCombiners) {
      const int64_t stride = dim + 1;
      std::vector<float> expected = RandomFloats(bags * stride, 1);
      DeviceArray<float> sums(expected);
      for (int64_t b = 0; b < bags; ++b) {
        const int64_t ids = begin[b + 1] - begin[b];
        const float divisor = UnweightedDivisor(combiner, ids);
        if (divisor != 0.0f) DivideUnweighted(divisor, ids, dim, expected.data() + b * stride);
      }
      const DividedSums divided = {device_begin.data(), bags, combiner, dim, {sums.data(), stride}};
      ASSERT_TRUE(EnqueueDivisions(nullptr, Span<const DividedSums>(&divided, 1)).ok());
      EXPECT_EQ(sums.Fetch(), expected) << "dim " << dim;
    }
  }
}

TEST(SummedBagsTest, ScalesGradientsAsTheCpu) {
  const std::vector<int32_t> begin = BagBegins();
  const std::vector<int32_t> bags = {1, 8, 2, 8, 5, 4, 3, 1};
  const auto sums = static_cast<int64_t>(bags.size());
  DeviceArray<int32_t> device_begin(begin);
  DeviceArray<int32_t> device_bags(bags);
  for (const int64_t dim : kDims) {
    for (const Combiner combiner : kCombiners) {
      const int64_t stride = dim + 2;
      const std::vector<float> gradient = RandomFloats((static_cast<int64_t>(begin.size()) - 1) * stride, 2);
      std::vector<float> expected;
      for (const int32_t bag : bags) {
        const float scale = UnweightedScale(combiner, begin[bag + 1] - begin[bag]);
        for (int64_t c = 0; c < dim; ++c) expected.push_back(scale * gradient[bag * stride + c]);
      }
      DeviceArray<float> device_gradient(gradient);
      DeviceArray<float> out(std::vector<float>(expected.size(), 7.0f));
      const GradientsOfSums of_sums = {
          device_begin.data(), combiner, dim,       {device_gradient.data(), stride},
          device_bags.data(),  sums,     out.data()};
      ASSERT_TRUE(EnqueueSumGradients(nullptr, Span<const GradientsOfSums>(&of_sums, 1)).ok());
      EXPECT_EQ(out.Fetch(), expected) << "dim " << dim;
    }
  }
}

// Requested sums are where plain loops place them, counts add up, and damage is noticed.

constexpr uint64_t kNoDamage = ~uint64_t{0};

struct Sums {
  std::vector<int32_t> offsets;
  uint64_t damaged = kNoDamage;
};

// parts[q] has the lengths of part q. The last part has `ids_more` more ids than its lengths add up to.
Sums FindSums(const std::vector<std::vector<int32_t>>& parts, int ranks, int64_t ids_more,
              std::vector<int64_t>* ids_begin) {
  std::vector<int64_t> begin = {0};
  std::vector<int32_t> lengths;
  std::vector<int32_t> rank_of;
  *ids_begin = {0};
  for (size_t q = 0; q < parts.size(); ++q) {
    int64_t ids = q + 1 == parts.size() ? ids_more : 0;
    for (const int32_t length : parts[q]) ids += length;
    // A part without sums may have ids, of a table that answers with rows.
    if (parts[q].empty()) ids = 3;
    lengths.insert(lengths.end(), parts[q].begin(), parts[q].end());
    begin.push_back(static_cast<int64_t>(lengths.size()));
    ids_begin->push_back(ids_begin->back() + ids);
    rank_of.push_back(static_cast<int32_t>(q) % ranks);
  }
  const auto count = static_cast<int64_t>(lengths.size());
  lengths.push_back(0);
  DeviceArray<int64_t> device_begin(begin);
  DeviceArray<int64_t> device_ids_begin(*ids_begin);
  DeviceArray<int32_t> device_ranks(rank_of);
  DeviceArray<int32_t> device_lengths(lengths);
  DeviceArray<int32_t> offsets(std::vector<int32_t>(count + parts.size(), -1));
  DeviceArray<uint64_t> damaged({kNoDamage});
  AsyncAllocator allocator;
  const ServedSums sums = {static_cast<int>(parts.size()),
                           device_begin.data(),
                           device_ids_begin.data(),
                           device_ranks.data(),
                           count,
                           device_lengths.data()};
  EXPECT_TRUE(FindServedSums(nullptr, &allocator, sums, offsets.data(), damaged.data()).ok());
  return {offsets.Fetch(), damaged.Fetch()[0]};
}

TEST(ServedIdsTest, SumsLieOneAfterTheOther) {
  std::mt19937 random(1);
  for (const size_t most : {0, 1, 5, 300, 1500}) {
    std::vector<std::vector<int32_t>> parts(6);
    for (std::vector<int32_t>& part : parts) {
      part.resize(most == 0 ? 0 : random() % (most + 1));
      for (int32_t& length : part) length = 1 + static_cast<int32_t>(random() % 5);
    }
    std::vector<int64_t> ids_begin;
    const Sums result = FindSums(parts, 3, 0, &ids_begin);
    EXPECT_EQ(result.damaged, kNoDamage);
    std::vector<int32_t> expected;
    for (size_t q = 0; q < parts.size(); ++q) {
      auto at = static_cast<int32_t>(ids_begin[q]);
      for (const int32_t length : parts[q]) {
        expected.push_back(at);
        at += length;
      }
      expected.push_back(static_cast<int32_t>(ids_begin[q + 1]));
    }
    EXPECT_EQ(result.offsets, expected);
  }
}

TEST(ServedIdsTest, DamagedLengthsAreNoticed) {
  std::vector<int64_t> ids_begin;
  EXPECT_EQ(FindSums({{1}, {2, 1}, {3}, {}, {5}, {1}}, 3, 0, &ids_begin).damaged, kNoDamage);
  EXPECT_EQ(FindSums({{1}, {2, 1}, {3}, {}, {5}, {1}}, 3, 1, &ids_begin).damaged, 2u);
  EXPECT_EQ(FindSums({{1}, {2, 1}, {3}, {}, {5, 0}, {1}}, 3, 0, &ids_begin).damaged, 1u);
  EXPECT_EQ(FindSums({{1}, {2, 1}, {3}, {}, {5}, {-1, 2}}, 3, 0, &ids_begin).damaged, 2u);
  EXPECT_EQ(FindSums({{1}, {2, 1}, {}, {}, {INT32_MIN, 5}, {-7}}, 3, 0, &ids_begin).damaged, 1u);
  // Their sum equals the number of the part's ids modulo 2^32.
  const std::vector<int32_t> wraps = {INT32_MAX, INT32_MAX, 5};
  EXPECT_EQ(FindSums({{1}, wraps}, 2, -(int64_t{1} << 32), &ids_begin).damaged, 1u);
}

TEST(ServedIdsTest, CountsAddUp) {
  std::mt19937 random(2);
  for (const int64_t n : {0, 1, 255, 257, 2000}) {
    const int64_t unique = n / 3 + 1;
    std::vector<int32_t> inverse(n);
    std::vector<int32_t> counts(n);
    std::vector<int32_t> expected(unique, 0);
    for (int64_t p = 0; p < n; ++p) {
      inverse[p] = static_cast<int32_t>(random() % unique);
      counts[p] = 1 + static_cast<int32_t>(random() % 9);
      expected[inverse[p]] += counts[p];
    }
    DeviceArray<int32_t> device_inverse(inverse);
    DeviceArray<int32_t> device_counts(counts);
    DeviceArray<int32_t> sums(std::vector<int32_t>(unique, -1));
    DeviceArray<int64_t> ids_begin({0, n});
    DeviceArray<int32_t> ranks({0});
    DeviceArray<uint64_t> damaged({kNoDamage});
    const ServedCounts served = {device_inverse.data(), n,           device_counts.data(),
                                 sums.data(),           unique,      1,
                                 ids_begin.data(),      ranks.data()};
    ASSERT_TRUE(AddServedCounts(nullptr, served, damaged.data()).ok());
    EXPECT_EQ(sums.Fetch(), expected);
    EXPECT_EQ(damaged.Fetch()[0], kNoDamage);
  }
}

TEST(ServedIdsTest, CountsStopAtTheirBoundAndMustBePositive) {
  DeviceArray<int32_t> inverse({0, 0, 0, 1, 1, 2, 2});
  DeviceArray<int32_t> counts({INT32_MAX, 5, INT32_MAX, INT32_MAX - 1, 1, 0, -4});
  DeviceArray<int32_t> sums({-1, -1, -1});
  DeviceArray<int64_t> ids_begin({0, 2, 6, 7});
  DeviceArray<int32_t> ranks({0, 1, 2});
  DeviceArray<uint64_t> damaged({kNoDamage});
  const ServedCounts served = {inverse.data(),   7,           counts.data(), sums.data(), 3, 3,
                               ids_begin.data(), ranks.data()};
  ASSERT_TRUE(AddServedCounts(nullptr, served, damaged.data()).ok());
  EXPECT_EQ(sums.Fetch(), (std::vector<int32_t>{INT32_MAX, INT32_MAX, 0}));
  EXPECT_EQ(damaged.Fetch()[0], 1u);
}

}  // namespace
}  // namespace sok
