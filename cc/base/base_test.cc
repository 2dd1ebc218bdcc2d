#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/crc32c.h"
#include "cc/base/float_types.h"
#include "cc/base/function_ref.h"
#include "cc/base/hash.h"
#include "cc/base/huge_pages.h"
#include "cc/base/printable.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/base/testing/vector_levels.h"
#include "cc/base/vectorize.h"

namespace sok {
namespace {

TEST(ChecksumTest, IsTheSameWithTheInstructionAndWithout) {
  std::mt19937_64 random(1);
  std::string text(3000, '\0');
  for (char& byte : text) byte = static_cast<char>(random());
  for (int64_t bytes = 0; bytes < 2500; ++bytes) {
    const char* const from = text.data() + bytes % 13;
    ASSERT_EQ(Crc32c(from, bytes), PortableCrc32c(from, bytes)) << bytes;
  }
}

TEST(StatusTest, OkHasNoMessage) {
  EXPECT_TRUE(OkStatus().ok());
  EXPECT_EQ(OkStatus().code(), StatusCode::kOk);
  EXPECT_EQ(OkStatus().message(), "");
}

TEST(StatusTest, ErrorsCarryCodeAndValues) {
  const Status status = ResourceExhausted("'", std::string("table"), "' holds ", 3, " of ", 2.5);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "'table' holds 3 of 2.5");
  EXPECT_EQ(InvalidArgument("x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FailedPrecondition("x").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(NotFound("x").code(), StatusCode::kNotFound);
  EXPECT_EQ(DataLoss("x").code(), StatusCode::kDataLoss);
  EXPECT_EQ(Unimplemented("x").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Internal("x").code(), StatusCode::kInternal);
}

TEST(StatusTest, ReturnIfErrorPassesErrorsOnAndGoesOnAfterOk) {
  int calls = 0;
  const auto run = [&](const Status& first) -> Status {
    SOK_RETURN_IF_ERROR(first);
    ++calls;
    return OkStatus();
  };
  EXPECT_EQ(run(NotFound("here")).message(), "here");
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(run(OkStatus()).ok());
  EXPECT_EQ(calls, 1);
}

TEST(StatusOrTest, HoldsAValueThatOnlyMoves) {
  StatusOr<std::unique_ptr<int>> made = std::make_unique<int>(7);
  ASSERT_TRUE(made.ok());
  const std::unique_ptr<int> taken = std::move(made.value());
  EXPECT_EQ(*taken, 7);
}

TEST(StatusOrTest, HoldsAnError) {
  const StatusOr<int> none = DataLoss("byte 3");
  EXPECT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(), "byte 3");
}

// Rows, shards and seeds depend on these bits, also in stored checkpoints: they must never change.
TEST(HashTest, Mix64KeepsItsBits) {
  // The first outputs of SplitMix64 with seed 0, as its authors' program prints them.
  EXPECT_EQ(Mix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(Mix64(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(Mix64(2 * 0x9e3779b97f4a7c15u), 0x06c45d188009454fu);
}

TEST(HashTest, EveryInputBitMovesHalfOfTheOutputBits) {
  for (int bit = 0; bit < 64; ++bit) {
    int changed = 0;
    for (uint64_t x = 0; x < 256; ++x) {
      changed += __builtin_popcountll(Mix64(x) ^ Mix64(x ^ (uint64_t{1} << bit)));
    }
    EXPECT_NEAR(changed / 256.0, 32.0, 2.0) << "bit " << bit;
  }
}

TEST(HashTest, FingerprintsAreFnv1a) {
  EXPECT_EQ(Fingerprint64("", 0), 0xcbf29ce484222325u);
  EXPECT_EQ(Fingerprint64("a", 1), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(Fingerprint64("foobar", 6), 0x85944171f73967e8u);
}

TEST(PrintableTest, PlainTextStays) {
  for (const char* text :
       {"", "plain 'text' \\ with \"quotes\"", "größer, 大きい, \xf0\x9f\x98\x80", "~ !"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, ControlCharactersOfTerminalsAreEscaped) {
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\x1b[2J\r\n\t\x7f"), "\\x1b[2J\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");  // a control sequence in one character
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b"),
            "a\\xe2\\x80\\xaeb");  // right to left
  EXPECT_EQ(Printable("\xe2\x80\xa8\xef\xbb\xbf"), "\\xe2\\x80\\xa8\\xef\\xbb\\xbf");
  EXPECT_EQ(Printable("\xe0\xa3\xa2"), "\\xe0\\xa3\\xa2");  // the invisible U+08E2
}

TEST(PrintableTest, InvalidUtf8IsEscaped) {
  EXPECT_EQ(Printable("\xff"
                      "a\xc3"),
            "\\xffa\\xc3");
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong encoding
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a lone surrogate
  EXPECT_EQ(Printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");  // above U+10FFFF
  EXPECT_EQ(Printable("\xe2\x82z\x80"), "\\xe2\\x82z\\x80");
}

int64_t Sum(Span<const int64_t> values) { return std::accumulate(values.begin(), values.end(), int64_t{0}); }

TEST(SpanTest, ViewsContainersAndOtherSpans) {
  std::vector<int64_t> vector = {1, 2, 3};
  const std::array<int64_t, 2> array = {4, 5};
  EXPECT_EQ(Sum(vector), 6);
  EXPECT_EQ(Sum(array), 9);
  EXPECT_EQ(Sum(Span<int64_t>(vector)), 6);
  EXPECT_EQ(Sum({}), 0);
  EXPECT_TRUE(Span<int64_t>().empty());
}

TEST(SpanTest, WritesThroughAndCutsParts) {
  std::vector<int64_t> vector = {1, 2, 3, 4};
  const Span<int64_t> all(vector);
  all[1] = 20;
  EXPECT_EQ(vector[1], 20);
  EXPECT_EQ(Sum(all.subspan(1, 2)), 23);
  EXPECT_EQ(all.subspan(4, 0).size(), 0);
}

TEST(FunctionRefTest, CallsWhatItRefersTo) {
  int calls = 0;
  auto count = [&calls](int by) { return calls += by; };
  const FunctionRef<int(int)> ref = count;
  EXPECT_EQ(ref(2), 2);
  const FunctionRef<int(int)> copy = ref;
  EXPECT_EQ(copy(3), 5);
}

#ifdef SOK_CHECK_BOUNDS
TEST(SpanDeathTest, AnIndexOutOfBoundsEndsTheProcess) {
  std::vector<int> vector(8);
  const Span<int> span = Span<int>(vector).subspan(2, 3);  // the vector has elements on both sides of it
  EXPECT_EQ(span[2], 0);
  EXPECT_DEATH(span[3], "Span of 3 elements: 1 from 3 on");
  EXPECT_DEATH(span[-1], "Span of 3 elements: 1 from -1 on");
  EXPECT_DEATH(Span<int>()[0], "Span of 0 elements");
}

TEST(SpanDeathTest, APartOutOfBoundsEndsTheProcess) {
  std::vector<int> vector(8);
  const Span<int> span = Span<int>(vector).subspan(2, 3);
  EXPECT_DEATH(span.subspan(1, 3), "3 from 1 on");
  EXPECT_DEATH(span.subspan(4, 0), "0 from 4 on");
  EXPECT_DEATH(span.subspan(-1, 2), "2 from -1 on");
  EXPECT_DEATH(span.subspan(1, -1), "-1 from 1 on");
  EXPECT_DEATH(span.subspan(1, INT64_MAX), "from 1 on");
}
#endif

// A loop with all operations of optimizers and pooling: sums of products, which a compiler might fuse, a
// square root, a quotient and a condition.
void Update(const std::vector<float>& g, std::vector<float>* w, std::vector<float>* v) {
  const float* __restrict in = g.data();
  float* __restrict weights = w->data();
  float* __restrict squares = v->data();
  const int64_t n = static_cast<int64_t>(g.size());
  for (int64_t i = 0; i < n; ++i) {
    squares[i] = 0.9f * squares[i] + 0.1f * in[i] * in[i];
    weights[i] -= 0.3f * in[i] / (std::sqrt(squares[i]) + (in[i] == 0.0f ? 1.0f : 1e-8f));
  }
}

void ExpectBitsOfThePlainLoop() {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  for (size_t n : {0, 1, 3, 4, 7, 8, 9, 31, 1000}) {
    std::vector<float> g(n);
    for (float& value : g) value = normal(random);
    if (n > 2) g[2] = 0.0f;
    std::vector<float> plain_w(n, 0.5f);
    std::vector<float> plain_v(n, 0.1f);
    std::vector<float> w = plain_w;
    std::vector<float> v = plain_v;
    int calls = 0;
    for (int step = 0; step < 20; ++step) {
      Update(g, &plain_w, &plain_v);
      RunVectorized([&] {
        Update(g, &w, &v);
        ++calls;
      });
    }
    EXPECT_EQ(calls, 20);
    EXPECT_EQ(w, plain_w) << n;
    EXPECT_EQ(v, plain_v) << n;
  }
}

TEST(RunVectorized, GivesTheBitsOfThePlainLoop) {
  for (const VectorLevel level : VectorLevels()) {
    SCOPED_TRACE(static_cast<int>(level));
    const WithVectorLevel with_level(level);
    ExpectBitsOfThePlainLoop();
  }
}

TEST(RunVectorized, UsesTheWidestVectorsByDefault) { EXPECT_EQ(vector_level, SupportedVectorLevel()); }

constexpr int64_t kHuge = PageBuffer::kHugePageBytes;

TEST(PageBufferTest, IsZeroedWritableAndAligned) {
  for (const int64_t bytes : {int64_t{1}, int64_t{100}, kHuge - 1, kHuge, kHuge + 1, 3 * kHuge + 5}) {
    StatusOr<PageBuffer> buffer = PageBuffer::Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status().message();
    ASSERT_EQ(buffer.value().size(), bytes);
    char* data = static_cast<char*>(buffer.value().data());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % (bytes >= kHuge ? kHuge : 64), 0u) << bytes;
    for (const int64_t at : {int64_t{0}, bytes / 2, bytes - 1}) EXPECT_EQ(data[at], 0) << bytes;
    std::memset(data, 7, bytes);
    EXPECT_EQ(data[bytes - 1], 7);
  }
}

TEST(PageBufferTest, NoBytesHaveNoData) {
  const StatusOr<PageBuffer> buffer = PageBuffer::Allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer.value().data(), nullptr);
  EXPECT_EQ(buffer.value().size(), 0);
}

TEST(PageBufferTest, ReservedAddressesCanBeUsedBeforeAndAfterAdvice) {
  StatusOr<PageBuffer> reserved = PageBuffer::ReserveAddresses(5 * kHuge);
  ASSERT_TRUE(reserved.ok());
  PageBuffer& buffer = reserved.value();
  char* data = static_cast<char*>(buffer.data());
  data[10] = 1;
  buffer.AdviseHugePages(3 * kHuge + 1);
  data[4 * kHuge - 1] = 2;
  buffer.AdviseHugePages(100 * kHuge);
  EXPECT_EQ(data[10], 1);
  EXPECT_EQ(data[4 * kHuge - 1], 2);
  EXPECT_EQ(data[5 * kHuge - 1], 0);
}

TEST(PageBufferTest, MovesItsMemory) {
  StatusOr<PageBuffer> made = PageBuffer::Allocate(128);
  ASSERT_TRUE(made.ok());
  PageBuffer a = std::move(made.value());
  static_cast<char*>(a.data())[5] = 9;
  const void* data = a.data();
  PageBuffer b(std::move(a));
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(b.data(), data);
  PageBuffer c;
  c = std::move(b);
  EXPECT_EQ(b.size(), 0);
  EXPECT_EQ(static_cast<char*>(c.data())[5], 9);
}

TEST(PageBufferTest, GrowsWithItsBytes) {
  PageBuffer buffer;
  std::vector<char> expected;
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{100}, int64_t{90}, kHuge - 1, kHuge + 1,
                              2 * kHuge, 2 * kHuge + 5, 9 * kHuge, 64 * kHuge}) {
    ASSERT_TRUE(buffer.Grow(bytes).ok());
    ASSERT_EQ(buffer.size(), std::max<int64_t>(bytes, static_cast<int64_t>(expected.size())));
    expected.resize(buffer.size());
    char* const data = static_cast<char*>(buffer.data());
    if (bytes >= kHuge) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % kHuge, 0u) << bytes;
    }
    EXPECT_EQ(std::vector<char>(data, data + buffer.size()), expected) << bytes;
    for (size_t i = 0; i < expected.size(); i += 1021) data[i] = expected[i] = static_cast<char>(bytes + i);
  }
  // Refused: the buffer stays.
  const void* const data = buffer.data();
  for (const int64_t bytes : {int64_t{1} << 50, std::numeric_limits<int64_t>::max()}) {
    const Status status = buffer.Grow(bytes);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find(std::to_string(bytes)), std::string::npos) << status.message();
  }
  EXPECT_EQ(buffer.data(), data);
  EXPECT_EQ(std::memcmp(data, expected.data(), expected.size()), 0);
}

TEST(PageBufferTest, RefusalNamesTheBytes) {
  for (const int64_t bytes :
       {int64_t{1} << 50, int64_t{1} << 60, std::numeric_limits<int64_t>::max(), int64_t{-1}}) {
    const StatusOr<PageBuffer> buffer = PageBuffer::Allocate(bytes);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.status().code(), StatusCode::kResourceExhausted);
    EXPECT_NE(buffer.status().message().find(std::to_string(bytes)), std::string::npos)
        << buffer.status().message();
  }
}

constexpr FloatType kTypes[] = {FloatType::kFloat16, FloatType::kBfloat16};

float Decode(FloatType type, uint16_t bits) {
  return type == FloatType::kFloat16 ? FromFloat16(bits) : FromBfloat16(bits);
}
uint16_t Encode(FloatType type, float value, uint32_t noise) {
  return type == FloatType::kFloat16 ? ToFloat16(value, noise) : ToBfloat16(value, noise);
}

// The share of all noise for which the result is the number farther from zero, and whether each result is one
// of the two numbers of `type` around the value.
double ShareRoundedUp(FloatType type, float value, float* toward_zero, float* away) {
  *toward_zero = *away = std::numeric_limits<float>::quiet_NaN();
  int64_t up = 0;
  for (uint32_t noise = 0; noise < 65536; ++noise) {
    const float result = Decode(type, Encode(type, value, noise));
    const bool is_up = std::fabs(result) > std::fabs(value);
    float& seen = is_up ? *away : *toward_zero;
    EXPECT_TRUE(std::isnan(seen) || result == seen) << value << " rounded to three numbers";
    seen = result;
    up += is_up ? 1 : 0;
  }
  return static_cast<double>(up) / 65536;
}

TEST(StochasticRoundingTest, RoundsUpWithTheProbabilityOfTheRest) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-27.0, 15.9);
  for (const FloatType type : kTypes) {
    for (int i = 0; i < 200; ++i) {
      const double sign = i % 2 == 0 ? 1.0 : -1.0;
      const auto value = static_cast<float>(sign * std::exp2(exponent(random)));
      float below;
      float above;
      const double share = ShareRoundedUp(type, value, &below, &above);
      if (share == 0.0 || share == 1.0) {
        // Too close to a number of the type for 16 bits of noise.
        const float only = share == 0.0 ? below : above;
        const double step =
            type == FloatType::kFloat16 && std::fabs(value) < 0x1p-14 ? 0x1p-24 : std::fabs(value) / 128;
        EXPECT_LT(std::fabs(only - value), step / 4096) << value;
        continue;
      }
      const double expected = (static_cast<double>(value) - below) / (static_cast<double>(above) - below);
      EXPECT_NEAR(share, expected, 2e-4) << NameOf(type) << " of " << value;
    }
  }
}

TEST(StochasticRoundingTest, NumbersOfTheTypeStay) {
  for (const FloatType type : kTypes) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const float value = Decode(type, static_cast<uint16_t>(bits));
      for (const uint32_t noise : {0u, 1u, 0x1fffu, 0x8000u, 0xffffu}) {
        const float result = Decode(type, Encode(type, value, noise));
        ASSERT_TRUE(result == value || (std::isnan(result) && std::isnan(value))) << bits << ", " << noise;
        ASSERT_EQ(std::signbit(result), std::signbit(value)) << bits;
      }
    }
  }
}

TEST(StochasticRoundingTest, FiniteNumbersOfTheRangeStayFinite) {
  const float largest = std::numeric_limits<float>::max();
  for (const uint32_t noise : {0u, 0x1fffu, 0xffffu}) {
    for (const float sign : {1.0f, -1.0f}) {
      EXPECT_TRUE(std::isfinite(FromBfloat16(ToBfloat16(sign * largest, noise))));
      EXPECT_EQ(FromFloat16(ToFloat16(sign * 65535.0f, noise)), sign * 65504.0f);
      EXPECT_EQ(FromFloat16(ToFloat16(sign * 65536.0f, noise)), sign * INFINITY);
    }
  }
}

TEST(RoundingNoiseTest, IsUniformAndTheSameAtEachVectorLevel) {
  std::vector<uint32_t> plain(4096);
  for (uint32_t i = 0; i < plain.size(); ++i) plain[i] = RoundingNoise(77, i);
  for (const VectorLevel level : VectorLevels()) {
    const WithVectorLevel with_level(level);
    std::vector<uint32_t> noise(plain.size());
    RunVectorized([&] {
      for (uint32_t i = 0; i < noise.size(); ++i) noise[i] = RoundingNoise(77, i);
    });
    EXPECT_EQ(noise, plain);
  }
  // Each of 16 bits is set for about half of the columns, and of the bases.
  for (int bit = 0; bit < 16; ++bit) {
    int of_columns = 0;
    int of_bases = 0;
    for (uint32_t i = 0; i < 4096; ++i) {
      of_columns += RoundingNoise(123, i) >> bit & 1;
      of_bases += RoundingNoise(i, 5) >> bit & 1;
    }
    EXPECT_NEAR(of_columns, 2048, 5 * 32) << bit;
    EXPECT_NEAR(of_bases, 2048, 5 * 32) << bit;
  }
}

TEST(RoundingNoiseTest, ColumnsAndBasesAreUncorrelated) {
  constexpr uint32_t kBases = 256;
  constexpr uint32_t kColumns = 192;
  const auto centered = [](uint32_t base, uint32_t column) {
    return (RoundingNoise(base, column) - 32767.5) / 65536;
  };
  double sum = 0.0;
  for (uint32_t base = 0; base < kBases; ++base) {
    for (uint32_t c = 0; c < kColumns; ++c) sum += centered(base, c);
  }
  // Five standard deviations of a mean of uniform numbers, and of a mean of products of two.
  const double root = std::sqrt(kBases * kColumns);
  EXPECT_NEAR(sum / (kBases * kColumns), 0.0, 5 / std::sqrt(12.0) / root);
  // With each other column up to the slot's of the same number; and with those of other bases.
  for (uint32_t by = 1; by <= 128; ++by) {
    double columns = 0.0;
    double bases = 0.0;
    for (uint32_t base = 0; base < kBases; ++base) {
      for (uint32_t c = 0; c < kColumns; ++c) {
        const double one = centered(base, c);
        columns += one * centered(base, c + by);
        bases += one * centered(base + by, c);
      }
    }
    EXPECT_NEAR(columns / (kBases * kColumns), 0.0, 5.0 / 12 / root) << by;
    EXPECT_NEAR(bases / (kBases * kColumns), 0.0, 5.0 / 12 / root) << by;
  }
}

}  // namespace
}  // namespace sok
