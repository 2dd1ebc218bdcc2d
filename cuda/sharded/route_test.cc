// Ids and sums are routed to their owners as by plain loops.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/placement/placement.h"
#include "cc/table/record_layout.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/sharded/route_ids.h"

namespace sok {
namespace {

// A table of a group: its ids, its placement, and for sums the lengths of its bags.
struct TableOfTest {
  std::vector<int64_t> keys;
  Placement placement;
  std::vector<int32_t> bag_lengths;  // empty: rows
};

struct Routes {
  std::vector<int64_t> begin;
  std::vector<int64_t> keys;
  std::vector<int32_t> number;
  std::vector<int32_t> moved;
  std::vector<int32_t> counts;
  std::vector<int64_t> received;
  std::vector<int64_t> row_begin;
  std::vector<int32_t> bags;
  std::vector<int32_t> lengths;
};

int32_t CountOf(int64_t u) { return static_cast<int32_t>(u % 7 + 1); }

// The bag of each id of a table, -1 without bags.
std::vector<int32_t> BagsOf(const TableOfTest& table) {
  std::vector<int32_t> bags;
  for (size_t b = 0; b < table.bag_lengths.size(); ++b) {
    bags.insert(bags.end(), table.bag_lengths[b], static_cast<int32_t>(b));
  }
  bags.resize(table.keys.size(), -1);
  return bags;
}

Routes Reference(const std::vector<TableOfTest>& tables, int ranks) {
  Routes routes;
  routes.begin = {0};
  routes.row_begin = {0};
  int64_t first = 0;
  for (const TableOfTest& table : tables) {
    const KeyOwners owners = table.placement.owners(ranks);
    const std::vector<int32_t> bags = BagsOf(table);
    routes.moved.resize(first + table.keys.size());
    for (int r = 0; r < ranks; ++r) {
      int32_t last_bag = -1;
      for (size_t i = 0; i < table.keys.size(); ++i) {
        if (owners.OwnerOf(table.keys[i]) != r) continue;
        const int64_t u = first + static_cast<int64_t>(i);
        routes.moved[u] = static_cast<int32_t>(routes.keys.size());
        routes.received.push_back(int64_t{r} << kReceivedRowBits |
                                  (static_cast<int64_t>(routes.keys.size()) - routes.begin.back()));
        routes.keys.push_back(table.keys[i]);
        routes.number.push_back(static_cast<int32_t>(u));
        routes.counts.push_back(CountOf(u));
        if (bags[i] < 0 || bags[i] != last_bag) {
          routes.bags.push_back(bags[i]);
          routes.lengths.push_back(0);
        }
        ++routes.lengths.back();
        last_bag = bags[i];
      }
      routes.begin.push_back(static_cast<int64_t>(routes.keys.size()));
      routes.row_begin.push_back(static_cast<int64_t>(routes.bags.size()));
    }
    first += static_cast<int64_t>(table.keys.size());
  }
  return routes;
}

// The arrays of a group on the host, with `spare` entries after those of its ids. Each id is its own
// occurrence.
struct HostGroup {
  HostGroup(const std::vector<TableOfTest>& tables, int ranks, int64_t spare) {
    for (const TableOfTest& table : tables) {
      owners.push_back({table.placement.owners(ranks), static_cast<int64_t>(boundaries.size())});
      if (table.placement.kind() == PlacementKind::kRanges) {
        const int64_t* const from = owners.back().owners.boundaries;
        boundaries.insert(boundaries.end(), from, from + ranks + 1);
      }
      first_bag.push_back(static_cast<int64_t>(bag_begins.size()));
      bag_begins.push_back(static_cast<int32_t>(keys.size()));
      for (const int32_t length : table.bag_lengths) bag_begins.push_back(bag_begins.back() + length);
      keys.insert(keys.end(), table.keys.begin(), table.keys.end());
      begin.push_back(static_cast<int64_t>(keys.size()));
    }
    boundaries.push_back(0);
    keys.resize(keys.size() + spare, 4711);
    for (size_t u = 0; u < keys.size(); ++u) {
      positions.push_back(static_cast<int32_t>(u));
      counts.push_back(CountOf(static_cast<int64_t>(u)));
    }
  }

  std::vector<int64_t> begin = {0};
  std::vector<int64_t> keys;
  std::vector<int64_t> boundaries;
  std::vector<OwnersOfTable> owners;
  std::vector<int32_t> bag_begins;
  std::vector<int64_t> first_bag;  // by table: where its bags begin in bag_begins
  std::vector<int32_t> positions;
  std::vector<int32_t> counts;
};

// The bags of each table, whose begins are on the device.
std::vector<SummedBags> BagsOnDevice(const std::vector<TableOfTest>& tables, const HostGroup& group,
                                     const int32_t* bag_begins) {
  std::vector<SummedBags> bags;
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto num_bags = static_cast<int64_t>(tables[t].bag_lengths.size());
    bags.push_back(num_bags == 0 ? SummedBags() : SummedBags{bag_begins + group.first_bag[t], num_bags});
  }
  return bags;
}

// The kernels' outputs, on the device.
struct DeviceRoutes {
  DeviceRoutes(int parts, size_t max)
      : begin(std::vector<int64_t>(parts + 1, -1)),
        keys(std::vector<int64_t>(max, -1)),
        number(std::vector<int32_t>(max, -1)),
        moved(std::vector<int32_t>(max, -1)),
        counts(std::vector<int32_t>(max, -1)),
        received(std::vector<int64_t>(max, -1)),
        row_begin(std::vector<int64_t>(parts + 1, -1)),
        bags(std::vector<int32_t>(max, -1)),
        lengths(std::vector<int32_t>(max, -1)) {}

  // The outputs of the first `n` ids.
  Routes Fetch(int64_t n) const {
    Routes routes = {begin.Fetch(),    keys.Fetch(),      number.Fetch(), moved.Fetch(),  counts.Fetch(),
                     received.Fetch(), row_begin.Fetch(), bags.Fetch(),   lengths.Fetch()};
    routes.keys.resize(n);
    routes.number.resize(n);
    routes.moved.resize(n);
    routes.counts.resize(n);
    routes.received.resize(n);
    routes.bags.resize(routes.row_begin.back());
    routes.lengths.resize(routes.row_begin.back());
    return routes;
  }

  DeviceArray<int64_t> begin, keys;
  DeviceArray<int32_t> number, moved, counts;
  DeviceArray<int64_t> received, row_begin;
  DeviceArray<int32_t> bags, lengths;
};

// The kernels' result if the host's bound on the number of ids is too high by `spare`.
Routes Run(const std::vector<TableOfTest>& tables, int ranks, int64_t spare) {
  const HostGroup group(tables, ranks, spare);
  const auto max = static_cast<int64_t>(group.keys.size());
  const int parts = static_cast<int>(tables.size()) * ranks;
  DeviceArray<int64_t> begin(group.begin), keys(group.keys), boundaries(group.boundaries);
  DeviceArray<OwnersOfTable> owners(group.owners);
  DeviceArray<int32_t> bag_begins(group.bag_begins), positions(group.positions), counts(group.counts);
  DeviceArray<SummedBags> bags(BagsOnDevice(tables, group, bag_begins.data()));
  DeviceRoutes routes(parts, group.keys.size());
  AsyncAllocator allocator;
  const IdsOfGroup ids = {static_cast<int>(tables.size()), begin.data(), keys.data(), max};
  const RoutedIds routed = {routes.begin.data(), routes.keys.data(), routes.number.data(),
                            routes.moved.data(), routes.counts.data()};
  EXPECT_TRUE(
      RouteIds(nullptr, &allocator, ids, owners.data(), boundaries.data(), counts.data(), ranks, routed)
          .ok());
  EXPECT_TRUE(
      NumberReceivedRows(nullptr, routes.begin.data(), parts, ranks, max, routes.received.data()).ok());
  EXPECT_TRUE(FindRoutedRows(nullptr, &allocator, ids, routed, positions.data(), bags.data(), ranks,
                             {routes.row_begin.data(), routes.bags.data(), routes.lengths.data()})
                  .ok());
  return routes.Fetch(max - spare);
}

void ExpectReference(const std::vector<TableOfTest>& tables, int ranks, int64_t spare = 0) {
  const Routes expected = Reference(tables, ranks);
  const Routes result = Run(tables, ranks, spare);
  ASSERT_EQ(result.begin, expected.begin);
  ASSERT_EQ(result.keys, expected.keys);
  ASSERT_EQ(result.number, expected.number);
  ASSERT_EQ(result.moved, expected.moved);
  ASSERT_EQ(result.counts, expected.counts);
  ASSERT_EQ(result.received, expected.received);
  ASSERT_EQ(result.row_begin, expected.row_begin);
  ASSERT_EQ(result.bags, expected.bags);
  ASSERT_EQ(result.lengths, expected.lengths);
}

// Bags of up to seven ids, some without.
std::vector<int32_t> BagLengths(int64_t ids, uint64_t seed) {
  std::vector<int32_t> lengths;
  for (uint64_t i = seed; ids > 0; ++i) {
    lengths.push_back(static_cast<int32_t>(std::min<int64_t>(ids, i % 3 == 0 ? 0 : i * 5 % 8)));
    ids -= lengths.back();
  }
  lengths.push_back(0);
  return lengths;
}

TEST(RouteTest, TablesOfAllPlacements) {
  for (const int ranks : {1, 2, 3, 8}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    std::vector<int64_t> boundaries = {0};
    std::vector<int64_t> others = {0};
    for (int r = 0; r < ranks; ++r) {
      boundaries.push_back(boundaries.back() + 40 * r);
      others.push_back(others.back() + 25 + 10 * r);
    }
    std::vector<TableOfTest> tables = {{RandomIds(500, 300, 1), Placement(), {}},
                                       {RandomIds(300, 300, 2), Placement::OneRank(ranks - 1), {}},
                                       {{}, Placement(), {}},
                                       {ZipfIds(400, 300, 1.05, 3), Placement::AllRanks(), {}},
                                       {ZipfIds(300, 300, 1.05, 4), Placement::Ranges(boundaries), {}},
                                       {ZipfIds(300, 300, 1.05, 5), Placement::Ranges(others), {}},
                                       {HostileIds(), Placement::Ranges(boundaries), {}},
                                       {HostileIds(), Placement(), {}}};
    ASSERT_NO_FATAL_FAILURE(ExpectReference(tables, ranks));
    for (TableOfTest& table : tables) {
      if (table.keys.size() % 3 != 1) table.bag_lengths = BagLengths(table.keys.size(), table.keys.size());
    }
    ASSERT_NO_FATAL_FAILURE(ExpectReference(tables, ranks));
    ASSERT_NO_FATAL_FAILURE(ExpectReference(tables, ranks, /*spare=*/700));
  }
}

TEST(RouteTest, SizesAroundThoseOfBlocksAndTiles) {
  for (const int64_t n : {0, 1, 2, 31, 33, 255, 256, 257, 1023, 1024, 1025}) {
    SCOPED_TRACE(n);
    const std::vector<int64_t> ids = RandomIds(n, n / 2 + 1, n);
    ASSERT_NO_FATAL_FAILURE(ExpectReference({{ids, Placement(), {}}}, 3));
    ASSERT_NO_FATAL_FAILURE(ExpectReference({{ids, Placement(), BagLengths(n, 1)}}, 3));
  }
}

TEST(RouteTest, OneBagAndOneKey) {
  const std::vector<int64_t> equal(600, INT64_MIN);
  ASSERT_NO_FATAL_FAILURE(ExpectReference({{equal, Placement(), {600}}, {equal, Placement(), {600}}}, 3));
  ASSERT_NO_FATAL_FAILURE(
      ExpectReference({{RandomIds(600, 500, 1), Placement(), {0, 600, 0}}, {equal, Placement(), {}}}, 4, 10));
}

// The last row of the last rank has the largest number.
TEST(ReceivedRowsTest, NumbersFitReferences) {
  const int64_t last = int64_t{kMaxReceivingRanks - 1} << kReceivedRowBits | INT32_MAX;
  EXPECT_EQ(RowOf(last), last);
}

}  // namespace
}  // namespace sok
