#include "cc/placement/placement.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>
#include <vector>

namespace sok {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
constexpr int64_t kSmallest = std::numeric_limits<int64_t>::min();

// Boundaries of random ranges, some of them empty.
std::vector<int64_t> RandomBoundaries(std::mt19937_64& random, int ranks) {
  std::vector<int64_t> boundaries = {0};
  for (int r = 0; r < ranks; ++r) {
    boundaries.push_back(boundaries.back() + static_cast<int64_t>(random() % 3 == 0 ? 0 : random() % 9));
  }
  if (boundaries.back() == 0) boundaries.back() = 4;
  return boundaries;
}

int64_t Longest(const std::vector<int64_t>& boundaries) {
  int64_t longest = 0;
  for (size_t r = 1; r < boundaries.size(); ++r) {
    longest = std::max(longest, boundaries[r] - boundaries[r - 1]);
  }
  return longest;
}

// A placement of each kind for `ranks` ranks, with the capacity of a table without hashing.
struct Case {
  Placement placement;
  int ranks;
  int64_t capacity;
};

std::vector<Case> Cases() {
  std::mt19937_64 random(1);
  std::vector<Case> cases;
  for (const int ranks : {1, 2, 3, 4, 7, 64}) {
    cases.push_back({Placement(), ranks, 5});
    for (const int64_t keys : {1, 11, 128}) {
      cases.push_back({Placement::ByKey(keys), ranks, (keys + ranks - 1) / ranks});
    }
    cases.push_back({Placement::AllRanks(), ranks, 5});
    for (int rank = 0; rank < std::min(ranks, 4); ++rank) {
      cases.push_back({Placement::OneRank(rank), ranks, 5});
    }
    for (int i = 0; i < 5; ++i) {
      const std::vector<int64_t> boundaries = RandomBoundaries(random, ranks);
      cases.push_back({Placement::Ranges(boundaries), ranks, Longest(boundaries)});
    }
  }
  return cases;
}

std::vector<int64_t> SomeKeys() {
  std::vector<int64_t> keys = {kSmallest, kSmallest + 1, -1, kLargest, int64_t{1} << 32};
  for (int64_t key = 0; key < 600; ++key) keys.push_back(key);
  return keys;
}

// The owner, computed from the definition.
int SlowOwner(const Placement& placement, int ranks, int64_t key) {
  if (placement.is_by_key()) return static_cast<int>(static_cast<uint64_t>(key) % ranks);
  if (placement.is_replicated()) return 0;
  const KeyOwners owners = placement.owners(ranks);
  if (placement.kind() == PlacementKind::kOneRank) return owners.rank;
  int owner = 0;
  while (owner + 1 < ranks &&
         static_cast<uint64_t>(owners.boundaries[owner + 1]) <= static_cast<uint64_t>(key))
    ++owner;
  return owner;
}

TEST(PlacementTest, EveryKeyHasOneOwnerOrIsOnAllRanks) {
  for (const Case& c : Cases()) {
    const KeyOwners owners = c.placement.owners(c.ranks);
    for (const int64_t key : SomeKeys()) {
      const int owner = owners.OwnerOf(key);
      ASSERT_EQ(owner, SlowOwner(c.placement, c.ranks, key)) << c.placement.Text() << " " << key;
      int holders = 0;
      for (int rank = 0; rank < c.ranks; ++rank) holders += owners.Holds(rank, key) ? 1 : 0;
      ASSERT_EQ(holders, c.placement.is_replicated() ? c.ranks : 1) << c.placement.Text() << " " << key;
      ASSERT_TRUE(owners.Holds(owner, key));
    }
  }
}

TEST(PlacementTest, KeysAreUnsignedModuloTheRanks) {
  EXPECT_EQ(OwnerByKey(0, 3), 0);
  EXPECT_EQ(OwnerByKey(5, 3), 2);
  EXPECT_EQ(OwnerByKey(-1, 7), 1);  // 2^64 - 1 = 1 modulo 7
  EXPECT_EQ(OwnerByKey((int64_t{1} << 32) + 1, 3), 2);
  EXPECT_EQ(OwnerByKey(kSmallest, 5), 3);  // 2^63 = 3 modulo 5
  EXPECT_EQ(OwnerByKey(kLargest, 1), 0);
}

TEST(PlacementTest, KeysBeyondTheRangesBelongToTheLastRank) {
  const Placement placement = Placement::Ranges({0, 4, 4, 9});
  const KeyOwners owners = placement.owners(3);
  for (const int64_t key : {int64_t{4}, int64_t{8}, int64_t{9}, kLargest, int64_t{-1}, kSmallest}) {
    EXPECT_EQ(owners.OwnerOf(key), 2) << key;
  }
  for (int64_t key = 0; key < 4; ++key) EXPECT_EQ(owners.OwnerOf(key), 0) << key;
}

// In a table without hashing the rows of each rank are the keys that it holds, and all ranks hold all keys.
TEST(PlacementTest, StaticRowsAreTheKeysThatARankHolds) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.placement.Text());
    ASSERT_TRUE(c.placement.CheckStatic(c.ranks, c.capacity).ok());
    const KeyOwners owners = c.placement.owners(c.ranks);
    const int64_t keys = c.placement.StaticKeys(c.ranks, c.capacity);
    int64_t rows = 0;
    int64_t longest = 0;
    for (int rank = 0; rank < c.ranks; ++rank) {
      const StaticRows own = c.placement.RowsOn(rank, c.ranks, c.capacity);
      std::set<int64_t> seen;
      for (int64_t row = 0; row < own.count; ++row) {
        const int64_t key = own.KeyOf(row);
        ASSERT_TRUE(key >= 0 && key < keys && owners.Holds(rank, key)) << rank << " " << key;
        ASSERT_EQ(own.RowOf(key), row);
        seen.insert(key);
      }
      for (int64_t key = 0; key < keys; ++key) ASSERT_EQ(owners.Holds(rank, key), seen.count(key) == 1);
      for (int64_t key = 0; key < keys; ++key) ASSERT_EQ(own.RowOf(key) >= 0, seen.count(key) == 1) << key;
      for (const int64_t beyond : {keys, keys + 1, keys + c.ranks, kLargest, int64_t{-1}, kSmallest}) {
        ASSERT_EQ(own.RowOf(beyond), -1) << beyond;
      }
      if (c.placement.represents(rank)) rows += own.count;
      longest = std::max(longest, own.count);
    }
    EXPECT_EQ(rows, keys);
    EXPECT_EQ(longest, c.capacity);
  }
}

TEST(PlacementTest, TextsRoundTrip) {
  for (const Case& c : Cases()) {
    const StatusOr<Placement> read = Placement::Parse(c.placement.Text());
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_TRUE(read.value() == c.placement);
    EXPECT_EQ(read.value().Text(), c.placement.Text());
  }
  EXPECT_EQ(Placement().Text(), "by_key");
  EXPECT_EQ(Placement::ByKey(11).Text(), "by_key:11");
  EXPECT_EQ(Placement::OneRank(2).Text(), "one_rank:2");
  EXPECT_EQ(Placement::AllRanks().Text(), "all_ranks");
  EXPECT_EQ(Placement::Ranges({0, 100, 250}).Text(), "ranges:0,100,250");
  EXPECT_EQ(Placement::Parse("ranges:0,9223372036854775807").value(), Placement::Ranges({0, kLargest}));
  EXPECT_EQ(Placement::Parse("one_rank:2147483647").value(), Placement::OneRank(2147483647));
}

TEST(PlacementTest, ErrorsQuoteTextsThatAreNoPlacement) {
  for (const std::string text : {"",
                                 "by_key ",
                                 " by_key",
                                 "By_key",
                                 "by_key:",
                                 "by_key:0",
                                 "by_key:01",
                                 "by_key:1,2",
                                 "by_key:-1",
                                 "all_ranks:0",
                                 "one_rank",
                                 "one_rank:",
                                 "one_rank:-1",
                                 "one_rank:+1",
                                 "one_rank:01",
                                 "one_rank:1 ",
                                 "one_rank:1,2",
                                 "one_rank:0x1",
                                 "one_rank:2147483648",
                                 "one_rank:99999999999999999999",
                                 "ranges:",
                                 "ranges:0,",
                                 "ranges:,0",
                                 "ranges:0,,1",
                                 "ranges:0,-1",
                                 "ranges:0, 1",
                                 "ranges:00,1",
                                 "ranges:0,9223372036854775808",
                                 "ranges:0;1",
                                 "ranges:0,1\n",
                                 "rank:1"}) {
    const StatusOr<Placement> read = Placement::Parse(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
    if (text.find('\n') == std::string::npos) {
      EXPECT_NE(read.status().message().find("not \"" + text + "\""), std::string::npos)
          << read.status().message();
    }
  }
  EXPECT_FALSE(Placement::Parse(std::string_view("by_key\0", 7)).ok());
  const StatusOr<Placement> hostile = Placement::Parse("ranges:\x1b[2J" + std::string(1 << 20, '9'));
  EXPECT_EQ(hostile.status().message().find('\x1b'), std::string::npos);
  EXPECT_LT(hostile.status().message().size(), 2000u);
}

TEST(PlacementTest, RandomTextsAreRefusedOrRoundTrip) {
  const std::string alphabet = "by_keyone_rank:all_ranksranges:0123456789,,,000";
  std::mt19937_64 random(3);
  int good = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = random() % 2 ? "ranges:" : "one_rank:";
    for (uint64_t n = random() % 8; n > 0; --n) text += alphabet[random() % alphabet.size()];
    const StatusOr<Placement> read = Placement::Parse(text);
    if (!read.ok()) continue;
    ++good;
    ASSERT_EQ(read.value().Text(), text);
  }
  EXPECT_GT(good, 100);
}

TEST(PlacementTest, PlacementsThatDoNotFitTheRanksAreErrors) {
  EXPECT_TRUE(Placement::OneRank(2).Check(3).ok());
  EXPECT_FALSE(Placement::OneRank(3).Check(3).ok());
  EXPECT_FALSE(Placement::OneRank(-1).Check(3).ok());
  for (const std::vector<int64_t>& boundaries : std::vector<std::vector<int64_t>>{
           {}, {0}, {0, 5}, {0, 5, 7, 9, 10}, {1, 5, 7, 9}, {0, 7, 5, 9}, {0, 5, 7, 6}, {-1, 5, 7, 9}}) {
    const Status status = Placement::Ranges(boundaries).Check(3);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("ranges:"), std::string::npos);
  }
  EXPECT_TRUE(Placement::Ranges({0, 5, 5, 9}).Check(3).ok());
  EXPECT_TRUE(Placement::Ranges({0, 5, 5, 9}).CheckStatic(3, 5).ok());
  EXPECT_TRUE(Placement::ByKey(11).CheckStatic(3, 4).ok());
  EXPECT_NE(Placement::ByKey(11).CheckStatic(3, 5).message().find("4, not 5"), std::string::npos);
  EXPECT_NE(Placement::Ranges({0, 5, 5, 9}).CheckStatic(3, 9).message().find("5, not 9"), std::string::npos);
}

}  // namespace
}  // namespace sok
