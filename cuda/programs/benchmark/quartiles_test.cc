#include "cuda/programs/benchmark/quartiles.h"

#include <gtest/gtest.h>

namespace sok {
namespace {

TEST(QuartilesTest, OfNoneOneAndFew) {
  EXPECT_EQ(QuartilesOf({}).values, 0);
  EXPECT_EQ(QuartilesOf({3}).median, 3);
  EXPECT_EQ(QuartilesOf({3}).third, 3);
  const Quartiles of_four = QuartilesOf({4, 1, 3, 2});
  EXPECT_EQ(of_four.least, 1);
  EXPECT_EQ(of_four.first, 1.75);
  EXPECT_EQ(of_four.median, 2.5);
  EXPECT_EQ(of_four.third, 3.25);
  EXPECT_EQ(of_four.most, 4);
  EXPECT_EQ(of_four.values, 4);
}

TEST(QuartilesTest, OutliersAreFarFromTheMiddleHalf) {
  EXPECT_EQ(QuartilesOf({10, 11, 12, 13, 14}).outliers, 0);
  EXPECT_EQ(QuartilesOf({10, 11, 12, 13, 100}).outliers, 1);
  EXPECT_EQ(QuartilesOf({0, 10, 11, 12, 13, 14, 100}).outliers, 2);
  EXPECT_EQ(QuartilesOf({5, 5, 5, 5}).outliers, 0);
}

}  // namespace
}  // namespace sok
