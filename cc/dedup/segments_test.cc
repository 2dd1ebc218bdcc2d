#include "cc/dedup/segments.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/dedup/testing/dedup_reference.h"

namespace sok {
namespace {

TEST(SegmentsTest, AgreesWithTheReferenceAndReusesMemory) {
  Segments segments;
  const std::vector<std::vector<int64_t>> batches = {{},
                                                     {5},
                                                     HostileIds(),
                                                     ZipfIds(20000, 3000, 1.05, 1),
                                                     RandomIds(5000, 1000, 2),
                                                     DistinctIds(3000, 3),
                                                     {},
                                                     std::vector<int64_t>(1000, 7)};
  for (const std::vector<int64_t>& ids : batches) {
    const ReferenceUnique unique = ReferenceDedup(ids);
    const int64_t num_unique = unique.unique.size();
    BuildSegments(unique.inverse, num_unique, &segments);
    const Segments expected = ReferenceSegments(unique.inverse, num_unique);
    EXPECT_EQ(segments.offsets, expected.offsets);
    EXPECT_EQ(segments.positions, expected.positions);
  }
}

TEST(SegmentsTest, IdsWithoutOccurrencesHaveEmptySegments) {
  Segments segments;
  const std::vector<int32_t> inverse = {3, 1, 3};
  BuildSegments(inverse, 5, &segments);
  EXPECT_EQ(segments.offsets, (std::vector<int64_t>{0, 0, 1, 1, 3, 3}));
  EXPECT_EQ(segments.positions, (std::vector<int32_t>{1, 0, 2}));
}

}  // namespace
}  // namespace sok
