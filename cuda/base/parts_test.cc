#include "cuda/base/parts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace sok {
namespace {

TEST(PartsTest, EveryPlaceIsInThePartThatHoldsIt) {
  const std::vector<std::vector<int64_t>> begins = {
      {0, 1},    {0, 5}, {0, 0, 3}, {0, 3, 3}, {0, 0, 0, 1, 1, 4, 4, 9, 9}, {0, 1, 2, 3, 4, 5, 6, 7},
      {7, 8, 20}};
  for (const std::vector<int64_t>& begin : begins) {
    const int parts = static_cast<int>(begin.size()) - 1;
    for (int64_t i = begin.front(); i < begin.back(); ++i) {
      const int part = PartOf(begin.data(), parts, i);
      EXPECT_LE(begin[part], i);
      EXPECT_LT(i, begin[part + 1]);
    }
  }
}

}  // namespace
}  // namespace sok
