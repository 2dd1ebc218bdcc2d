// Segments equal those of the reference.
#include "cuda/dedup/segments.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/dedup/testing/dedup_reference.h"
#include "cuda/base/async_allocator.h"
#include "cuda/device_array.h"

namespace sok {
namespace {

void ExpectReferenceSegments(const std::vector<int32_t>& inverse, int64_t unique) {
  const Segments expected = ReferenceSegments(inverse, unique);
  DeviceArray<int32_t> device_inverse(inverse);
  DeviceArray<int32_t> begin(std::vector<int32_t>(unique + 1, -1));
  DeviceArray<int32_t> positions(std::vector<int32_t>(inverse.size(), -1));
  AsyncAllocator allocator;
  const Status status =
      SortIntoSegments(nullptr, &allocator, device_inverse.data(), static_cast<int64_t>(inverse.size()),
                       unique, {begin.data(), positions.data()});
  ASSERT_TRUE(status.ok()) << status.message();
  const std::vector<int32_t> found = begin.Fetch();
  ASSERT_EQ(std::vector<int64_t>(found.begin(), found.end()), expected.offsets);
  ASSERT_EQ(positions.Fetch(), expected.positions);
}

class SegmentsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(SegmentsTest, OfBatchesAgreeWithTheReference) {
  const std::vector<std::vector<int64_t>> batches = {{},
                                                     {5},
                                                     HostileIds(),
                                                     ZipfIds(5000, 3000, 1.05, 1),
                                                     RandomIds(3000, 600, 2),
                                                     DistinctIds(2000, 3),
                                                     std::vector<int64_t>(1000, 7)};
  for (const std::vector<int64_t>& ids : batches) {
    SCOPED_TRACE(ids.size());
    const ReferenceUnique unique = ReferenceDedup(ids);
    ExpectReferenceSegments(unique.inverse, static_cast<int64_t>(unique.unique.size()));
  }
}

// The sort uses only the bits that the numbers have.
TEST_F(SegmentsTest, NumbersOfIdsAroundPowersOfTwo) {
  for (const int64_t unique : {1, 2, 3, 4, 255, 256, 257, 1023, 1024, 1025}) {
    SCOPED_TRACE(unique);
    std::mt19937 random(static_cast<unsigned>(unique));
    std::vector<int32_t> inverse(700);
    for (int32_t& u : inverse) u = static_cast<int32_t>(random() % unique);
    inverse[300] = static_cast<int32_t>(unique - 1);
    ExpectReferenceSegments(inverse, unique);
  }
}

TEST_F(SegmentsTest, IdsWithoutOccurrencesHaveEmptySegments) {
  ExpectReferenceSegments({3, 1, 3}, 5);
  ExpectReferenceSegments({}, 7);
  ExpectReferenceSegments({}, 1000);
  ExpectReferenceSegments({400, 0, 400, 16, 999}, 1000);
  ExpectReferenceSegments({0}, 3000);
}

TEST(SegmentsLimitsTest, MorePositionsThanInt32HoldsAreRefused) {
  AsyncAllocator allocator;
  const Status status = SortIntoSegments(nullptr, &allocator, nullptr, int64_t{1} << 31, 1, {});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("2147483648"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace sok
