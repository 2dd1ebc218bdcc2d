// The formulas of traffic.h against what a simulated index and simulated memory count.
#include "cuda/programs/traffic.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cuda/index/key_index_view.h"

namespace sok {
namespace {

constexpr int kPlaces = KeyIndexView::kPlaces;

// The index, place by place: which sectors a search reads.
class SimulatedIndex {
 public:
  explicit SimulatedIndex(uint32_t buckets)
      : buckets_(buckets), digests_(buckets * kPlaces, 0), keys_(buckets * kPlaces, 0) {}

  void Insert(int64_t key) {
    const uint64_t hash = key_index::HashOf(key);
    uint32_t bucket = key_index::HomeOf(hash, buckets_);
    for (;; bucket = key_index::NextBucket(bucket, buckets_)) {
      for (int place = 0; place < kPlaces; ++place) {
        // Any free place: the order in which a bucket's places are tried depends on the hash.
        const uint32_t at = bucket * kPlaces + (place + static_cast<uint32_t>(hash % kPlaces)) % kPlaces;
        if (digests_[at] != 0) continue;
        digests_[at] = key_index::DigestOf(hash);
        keys_[at] = key;
        return;
      }
    }
  }

  struct Counts {
    int64_t buckets = 0;
    int64_t sectors = 0;
  };
  Counts Search(int64_t key) const {
    const uint64_t hash = key_index::HashOf(key);
    std::set<std::pair<int, int64_t>> sectors;
    Counts counts;
    uint32_t bucket = key_index::HomeOf(hash, buckets_);
    for (bool ended = false; !ended; bucket = key_index::NextBucket(bucket, buckets_)) {
      ++counts.buckets;
      sectors.insert({0, bucket * int64_t{kPlaces} / 32});
      for (int64_t at = bucket * int64_t{kPlaces}; at < (bucket + int64_t{1}) * kPlaces; ++at) {
        if (digests_[at] == 0) ended = true;
        if (digests_[at] != key_index::DigestOf(hash)) continue;
        sectors.insert({1, at * 16 / 32});
        if (keys_[at] != key) continue;
        ended = true;
        break;
      }
    }
    counts.sectors = static_cast<int64_t>(sectors.size());
    return counts;
  }

 private:
  uint32_t buckets_;
  std::vector<uint32_t> digests_;
  std::vector<int64_t> keys_;
};

TEST(TrafficTest, SearchesReadAsManyBucketsAndSectorsAsSimulatedOnes) {
  constexpr uint32_t kBuckets = 20000;
  for (const double load : {0.3, 0.5, 0.7, 0.8, 0.9, 0.95}) {
    SCOPED_TRACE(load);
    SimulatedIndex index(kBuckets);
    const auto n = static_cast<int64_t>(load * kBuckets * kPlaces);
    const std::vector<int64_t> present = DistinctIds(n, 1);
    const std::vector<int64_t> absent = DistinctIds(n, 2);
    for (const int64_t key : present) index.Insert(key);
    SimulatedIndex::Counts hits, misses;
    for (int64_t i = 0; i < n; ++i) {
      const SimulatedIndex::Counts hit = index.Search(present[i]);
      const SimulatedIndex::Counts miss = index.Search(absent[i]);
      hits = {hits.buckets + hit.buckets, hits.sectors + hit.sectors};
      misses = {misses.buckets + miss.buckets, misses.sectors + miss.sectors};
    }
    const auto each = [n](int64_t count) { return static_cast<double>(count) / static_cast<double>(n); };
    const IndexProbes probes = ProbesAtLoad(load);
    // Long runs of full buckets are rare, and make the averages of a single index vary.
    const double tolerance = load >= 0.9 ? 0.1 : 0.02;
    EXPECT_NEAR(each(hits.buckets) / probes.found, 1, tolerance / 2);
    EXPECT_NEAR(each(misses.buckets) / probes.absent, 1, tolerance);
    EXPECT_NEAR(32 * each(hits.sectors) / SearchBytes(probes.found, load, true), 1, tolerance);
    EXPECT_NEAR(32 * each(misses.sectors) / SearchBytes(probes.absent, load, false), 1, tolerance);
  }
}

TEST(TrafficTest, AnEmptyIndexIsSearchedInOneBucket) {
  EXPECT_EQ(ProbesAtLoad(0).found, 1);
  EXPECT_EQ(ProbesAtLoad(0).absent, 1);
  EXPECT_EQ(SearchBytes(1, 0, false), 32);
}

TEST(TrafficTest, SectorsOfRowsAreThoseThatTheirBytesTouch) {
  for (const int64_t bytes : {4, 16, 20, 32, 64, 100, 256, 400}) {
    for (const int64_t stride : {16, 48, 64, 100, 256, 404, 768}) {
      int64_t sectors = 0;
      constexpr int64_t kRows = 64;
      for (int64_t row = 0; row < kRows; ++row) {
        std::set<int64_t> touched;
        for (int64_t b = 0; b < bytes; ++b) touched.insert((row * stride + b) / 32);
        sectors += static_cast<int64_t>(touched.size());
      }
      EXPECT_EQ(SectorsOf(bytes, stride), 32.0 * static_cast<double>(sectors) / kRows)
          << bytes << " bytes, " << stride << " apart";
    }
  }
  EXPECT_EQ(SectorsOf(0, 16), 0);
}

TEST(TrafficTest, RecordsAreThoseOfTheStore) {
  BatchShape batch;
  batch.dim = 64;
  batch.slots = 2;
  EXPECT_EQ(RecordBytes(batch), 768);
  EXPECT_EQ(RecordStride(batch), 768);
  batch.row_slots = 1;
  EXPECT_EQ(RecordStride(batch), 784) << "a multiple of 16 bytes";
}

// Computed by hand for one id per bag and distinct ids.
TEST(TrafficTest, DistinctIdsOfRowsOf64Floats) {
  BatchShape batch;
  batch.ids = 1 << 20;
  batch.load = 0;
  batch.dim = 64;
  // Number 4, row number 8, bag 4, weights 256; output 256.
  EXPECT_EQ(PoolTraffic(batch).read, 4 + 8 + 4 + 256);
  EXPECT_EQ(PoolTraffic(batch).written, 256);
  EXPECT_EQ(GatherTraffic(batch).read, 4 + 8 + 256);
  batch.slots = 2;
  // Position 4, description 32, gradient 256, segment 4, row number 8, record 768; record 768.
  EXPECT_EQ(UpdateTraffic(batch).read, 4 + 32 + 256 + 4 + 8 + 768);
  EXPECT_EQ(UpdateTraffic(batch).written, 768);
  batch.catches_up = true;
  EXPECT_EQ(UpdateTraffic(batch).total(), 1072 + 768 + 2 * 32);
  // 20 bits of 2^20 numbers: three passes.
  EXPECT_EQ(SegmentsTraffic(batch).total(), 4 + 4 + 3 * 16 + 4 + 4);
}

TEST(TrafficTest, RepetitionsAndLongBagsMoveLess) {
  BatchShape each_once;
  BatchShape repeated = each_once;
  repeated.unique = 0.25;
  BatchShape in_bags = repeated;
  in_bags.hotness = 10;
  EXPECT_LT(PoolTraffic(repeated).total(), PoolTraffic(each_once).total());
  EXPECT_LT(PoolTraffic(in_bags).total(), PoolTraffic(repeated).total());
  EXPECT_LT(BackwardTraffic(repeated).total(), BackwardTraffic(each_once).total());
  EXPECT_LT(BackwardTraffic(in_bags).total(), BackwardTraffic(repeated).total());
  EXPECT_LT(StepTraffic(repeated, BagsFrom::kNothing).total(),
            StepTraffic(each_once, BagsFrom::kNothing).total());
  EXPECT_LT(StepTraffic(in_bags, BagsFrom::kSplits).total(),
            StepTraffic(in_bags, BagsFrom::kIndices).total());
  BatchShape cached = each_once;
  cached.cache_bytes = 50e6;
  EXPECT_LT(DedupTraffic(cached).total(), DedupTraffic(each_once).total());
}

TEST(TrafficTest, NewKeysCostTheirRows) {
  BatchShape batch;
  batch.slots = 1;
  const double known = FindOrInsertTraffic(batch).total();
  batch.absent = 1;
  EXPECT_GT(FindOrInsertTraffic(batch).total(), known + static_cast<double>(RecordBytes(batch)));
}

}  // namespace
}  // namespace sok
