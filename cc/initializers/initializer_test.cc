// An initial row is a function of seed and key alone, and its bits never change.
#include "cc/initializers/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/base/testing/vector_levels.h"

namespace sok {
namespace {

constexpr InitializerKind kKinds[] = {InitializerKind::kConstant, InitializerKind::kUniform,
                                      InitializerKind::kNormal, InitializerKind::kTruncatedNormal};

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

void ExpectFillRowEqualsInitialValue(const Initializer& initializer) {
  constexpr float kAfterTheRow = 77.0f;
  for (const int64_t dim : {1, 2, 3, 4, 7, 16, 63, 64, 129, 1025}) {
    for (const int64_t key : HostileIds()) {
      std::vector<float> row(dim + 16, kAfterTheRow);
      FillRow(initializer, key, Span<float>(row).subspan(0, dim));
      for (int64_t c = 0; c < dim; ++c) ASSERT_EQ(Bits(row[c]), Bits(InitialValue(initializer, key, c)));
      ASSERT_EQ(std::count(row.begin() + dim, row.end(), kAfterTheRow), 16);
    }
  }
}

TEST(InitializerTest, FillRowEqualsInitialValueAtEveryVectorLevel) {
  for (const VectorLevel level : VectorLevels()) {
    const WithVectorLevel with_level(level);
    for (const InitializerKind kind : kKinds) {
      ExpectFillRowEqualsInitialValue({kind, -1.0f, 2.0f, 99});
      ExpectFillRowEqualsInitialValue({kind, -1.0f, 2.0f, 99, /*rows=*/4096});
    }
  }
}

TEST(InitializerTest, KeysTakeGivenRowsByTheirRemainders) {
  constexpr int64_t kDim = 2;
  const std::vector<float> given = {0.5f, -0.0f, 3e38f, -1e-42f, 7.0f, 8.0f};
  for (const uint32_t rows : {1u, 3u}) {
    Initializer initializer{InitializerKind::kGiven, 0.0f, 0.0f, 99, rows};
    initializer.given = given.data();
    for (const int64_t key : HostileIds()) {
      const int64_t remainder = (key % int64_t{rows} + rows) % rows;
      std::vector<float> row(kDim + 1, 77.0f);
      FillRow(initializer, key, Span<float>(row).subspan(0, kDim));
      for (int64_t c = 0; c < kDim; ++c) {
        ASSERT_EQ(Bits(row[c]), Bits(given[remainder * kDim + c])) << key;
      }
      ASSERT_EQ(row.back(), 77.0f);
    }
  }
}

TEST(InitializerTest, KeysShareTheInitialRowsOfTheirRemainders) {
  for (const uint32_t rows : {1u, 2u, 7u, 4096u, UINT32_MAX}) {
    const Initializer own{InitializerKind::kUniform, -1.0f, 1.0f, 7};
    const Initializer shared{InitializerKind::kUniform, -1.0f, 1.0f, 7, rows};
    for (const int64_t key : HostileIds()) {
      // The remainder of Euclid's division, in more bits.
      const __int128 divisor = rows;
      const __int128 remainder = ((static_cast<__int128>(key) % divisor) + divisor) % divisor;
      for (const int64_t c : {0, 1, 70}) {
        EXPECT_EQ(Bits(InitialValue(shared, key, c)),
                  Bits(InitialValue(own, static_cast<int64_t>(remainder), c)))
            << key << " in " << rows;
      }
    }
  }
}

TEST(InitializerTest, ValuesDoNotDependOnOrderOrWidth) {
  const Initializer initializer{InitializerKind::kNormal, 0.0f, 1.0f, 7};
  std::vector<float> wide(64);
  FillRow(initializer, 5, Span<float>(wide));
  std::vector<float> other(10);
  FillRow(initializer, 6, Span<float>(other));
  for (int64_t c = 63; c >= 0; --c) EXPECT_EQ(InitialValue(initializer, 5, c), wide[c]);
  std::vector<float> narrow(3);
  FillRow(initializer, 5, Span<float>(narrow));
  EXPECT_EQ(narrow, std::vector<float>(wide.begin(), wide.begin() + 3));
}

TEST(InitializerTest, ValuesDependOnSeedKeyAndColumn) {
  std::set<float> values;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    for (const int64_t key : HostileIds()) {
      for (int64_t column = 0; column < 4; ++column) {
        values.insert(InitialValue({InitializerKind::kNormal, 0.0f, 1.0f, seed}, key, column));
      }
    }
  }
  EXPECT_EQ(values.size(), 3 * HostileIds().size() * 4);
}

// Each rank computes rows by itself, and a restarted run must begin with the same rows: a change of these
// bits breaks both. The expected values come from an independent computation of the formulas.
TEST(InitializerTest, BitsNeverChange) {
  struct Golden {
    InitializerKind kind;
    uint64_t seed;
    int64_t key;
    int64_t column;
    uint32_t bits;
  };
  const Golden goldens[] = {
      {InitializerKind::kUniform, 0u, 0, 0, 0xbd13fc12u},
      {InitializerKind::kUniform, 1u, -1, 1, 0xbd265495u},
      {InitializerKind::kUniform, 12345678901234567890u, (int64_t{1} << 32) + 1, 63, 0x3d3601cbu},
      {InitializerKind::kUniform, 7u, INT64_MAX, 1024, 0xbcb64277u},
      {InitializerKind::kUniform, 7u, INT64_MIN, 2, 0xbb8d3180u},
      {InitializerKind::kNormal, 0u, 0, 0, 0xbdd59eceu},
      {InitializerKind::kNormal, 1u, -1, 1, 0xbded42aau},
      {InitializerKind::kNormal, 12345678901234567890u, (int64_t{1} << 32) + 1, 63, 0x3cf2a61eu},
      {InitializerKind::kNormal, 7u, INT64_MAX, 1024, 0xbda2d72bu},
      {InitializerKind::kNormal, 7u, INT64_MIN, 2, 0xbd62f690u},
      {InitializerKind::kTruncatedNormal, 0u, 0, 0, 0xbdce4b89u},
      {InitializerKind::kTruncatedNormal, 1u, -1, 1, 0xbde2b38cu},
      {InitializerKind::kTruncatedNormal, 12345678901234567890u, (int64_t{1} << 32) + 1, 63, 0x3cb18a30u},
      {InitializerKind::kTruncatedNormal, 7u, INT64_MAX, 1024, 0xbd9fc643u},
      {InitializerKind::kTruncatedNormal, 7u, INT64_MIN, 2, 0xbd61f377u},
  };
  for (const Golden& golden : goldens) {
    const float value = InitialValue({golden.kind, -0.05f, 0.05f, golden.seed}, golden.key, golden.column);
    EXPECT_EQ(Bits(value), golden.bits) << value << " for key " << golden.key;
  }
}

}  // namespace
}  // namespace sok
