#include "cc/base/span.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "cc/base/function_ref.h"

namespace sok {
namespace {

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

}  // namespace
}  // namespace sok
