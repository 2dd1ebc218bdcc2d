// The first part of a lookup over ranks, on the asking rank.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/cpu/group/lookup_passes.h"
#include "cc/cpu/sharded/sharded_group.h"
#include "cc/lookup/lookup_input.h"
#include "cc/messages/request.h"
#include "cc/placement/key_owners.h"

namespace sok {
namespace {

// A stable sort of ids by the rank that owns them.
struct OwnerOrder {
  std::vector<int32_t> position;  // of each id among the sorted ones
  std::vector<int64_t> begin;     // ranks + 1: rank r's ids are sorted[begin[r] .. begin[r + 1])
};

// The owner of each id. Branches on the kind of placement once, not for each id.
std::vector<int32_t> OwnersOf(Span<const int64_t> ids, const KeyOwners& owners) {
  std::vector<int32_t> result(ids.size());
  if (owners.kind == PlacementKind::kByKey) {
    const int ranks = owners.ranks;
    for (int64_t i = 0; i < ids.size(); ++i) result[i] = OwnerByKey(ids[i], ranks);
  } else {
    for (int64_t i = 0; i < ids.size(); ++i) result[i] = owners.OwnerOf(ids[i]);
  }
  return result;
}

// ids.size() < 2^31.
void SortByOwner(Span<const int64_t> ids, const KeyOwners& owners, OwnerOrder* order) {
  const int ranks = owners.ranks;
  std::vector<int32_t>& position = order->position;
  position.resize(ids.size());
  std::vector<int64_t> counts(ranks, 0);
  // First each id's position among the ids of its owner; then the begin of that owner is added.
  const std::vector<int32_t> owner_of = OwnersOf(ids, owners);
  for (int64_t i = 0; i < ids.size(); ++i) position[i] = static_cast<int32_t>(counts[owner_of[i]]++);
  order->begin.assign(ranks + 1, 0);
  for (int r = 0; r < ranks; ++r) order->begin[r + 1] = order->begin[r] + counts[r];
  for (int64_t i = 0; i < ids.size(); ++i) position[i] += static_cast<int32_t>(order->begin[owner_of[i]]);
}

// Puts `values` in the order: value i goes to order.position[i].
template <typename T>
std::vector<T> InOwnerOrder(const OwnerOrder& order, Span<const T> values) {
  std::vector<T> sorted(values.size());
  for (int64_t i = 0; i < values.size(); ++i) sorted[order.position[i]] = values[i];
  return sorted;
}

std::vector<RouteRange> Ranges(const std::vector<int64_t>& begin) {
  std::vector<RouteRange> ranges(begin.size() - 1);
  for (size_t r = 0; r < ranges.size(); ++r) ranges[r] = {begin[r], begin[r + 1]};
  return ranges;
}

// Replicas: SortByOwner has assigned all rows to rank 0. Assigns them to this rank, and in training to all
// ranks.
void RouteToReplicas(const RoutePlan& plan, PartRoute* route) {
  const RouteRange all_ids = route->ids_for[0];
  const RouteRange all_rows = route->rows_for[0];
  for (int r = 0; r < plan.ranks; ++r) {
    const bool asked = r == plan.rank || plan.group.training;
    route->ids_for[r] = asked ? all_ids : RouteRange();
    route->rows_for[r] = asked ? all_rows : RouteRange();
    route->rows_from[r] = r == plan.rank ? all_rows : RouteRange();
  }
}

// Routes the distinct ids of a table to their owners, and finds the position of each occurrence among them.
// If `counts`, also counts the occurrences of each.
Status RouteRows(Executor& executor, Span<const int64_t> ids, const KeyOwners& owners, bool counts,
                 Deduplicator* deduplicator, TablePart* part, PartRoute* route) {
  std::vector<int64_t> unique;
  part->inverse.resize(ids.size());
  SOK_RETURN_IF_ERROR(deduplicator->Run(executor, ids, &unique, Span<int32_t>(part->inverse)));
  OwnerOrder order;
  SortByOwner(unique, owners, &order);
  route->ids = InOwnerOrder(order, Span<const int64_t>(unique));
  for (int32_t& position : part->inverse) position = order.position[position];
  route->counts.assign(counts ? unique.size() : 0, 0);
  if (counts) {
    for (const int32_t position : part->inverse) ++route->counts[position];
  }
  route->rows = static_cast<int64_t>(unique.size());
  route->ids_for = Ranges(order.begin);
  route->rows_for = route->ids_for;
  return OkStatus();
}

// Routes all ids of a pooled lookup to their owners, and finds the bags that each owner has ids of.
Status RouteSums(const Table& table, const LookupBags& lookup, Span<const int64_t> ids, PartRoute* route) {
  OwnerOrder order;
  SortByOwner(ids, table.key_owners(), &order);
  route->ids = InOwnerOrder(order, ids);
  std::vector<int32_t> bag_of(ids.size());
  for (int64_t bag = 0; bag < lookup.num_bags(); ++bag) {
    std::fill(bag_of.begin() + lookup.offsets[bag], bag_of.begin() + lookup.offsets[bag + 1],
              static_cast<int32_t>(bag));
  }
  bag_of = InOwnerOrder(order, Span<const int32_t>(bag_of));
  route->ids_for = Ranges(order.begin);
  for (const RouteRange& own : route->ids_for) {
    const int64_t first = static_cast<int64_t>(route->bags.size());
    for (int64_t i = own.begin; i < own.end; ++i) {
      if (i > own.begin && bag_of[i] == route->bags.back()) {
        ++route->lengths.back();
      } else {
        route->bags.push_back(bag_of[i]);
        route->lengths.push_back(1);
      }
    }
    route->rows_for.push_back({first, static_cast<int64_t>(route->bags.size())});
  }
  route->rows = static_cast<int64_t>(route->bags.size());
  return OkStatus();
}

// The numbers in a range; empty if there are no numbers.
std::vector<int32_t> PartOf(const std::vector<int32_t>& numbers, const RouteRange& range) {
  if (numbers.empty()) return {};
  return {numbers.begin() + range.begin, numbers.begin() + range.end};
}

Status RouteTable(Executor& executor, const Table& table, int64_t t, const LookupBags* lookup,
                  Span<const int64_t> ids, RoutePlan* plan, GroupScratch* scratch) {
  if (ids.size() > INT32_MAX) return TooManyIds(table.options().name, ids.size());
  PartRoute* route = &plan->routes[t];
  if (plan->modes[t] == ExchangeMode::kRows) {
    const bool counts = plan->group.training && table.counts_lookups();
    SOK_RETURN_IF_ERROR(RouteRows(executor, ids, table.key_owners(), counts,
                                  scratch->deduplicators.Take().get(), &plan->group.parts[t], route));
  } else {
    SOK_RETURN_IF_ERROR(RouteSums(table, *lookup, ids, route));
  }
  route->rows_from = route->rows_for;
  if (table.options().placement.is_replicated()) RouteToReplicas(*plan, route);
  return OkStatus();
}

// This rank's requests, by owner and table.
std::vector<std::vector<TableRequest>> RequestsToOwners(Span<Table* const> tables, const RoutePlan& plan) {
  std::vector<std::vector<TableRequest>> requests(plan.ranks, std::vector<TableRequest>(tables.size()));
  for (int64_t t = 0; t < tables.size(); ++t) {
    const PartRoute& route = plan.routes[t];
    const TableFingerprints fingerprints = FingerprintsOf(DefinitionOf(*tables[t], plan.modes[t]));
    for (int r = 0; r < plan.ranks; ++r) {
      TableRequest& request = requests[r][t];
      request.fingerprints = fingerprints;
      request.ids = Span<const int64_t>(route.ids).subspan(route.ids_for[r].begin, route.ids_for[r].size());
      request.counts = PartOf(route.counts, route.ids_for[r]);
      if (plan.rank == kNoRank && plan.group.training && r == 0) {
        request.occurrences = plan.modes[t] == ExchangeMode::kRows
                                  ? static_cast<int64_t>(plan.group.parts[t].inverse.size())
                                  : static_cast<int64_t>(route.ids.size());
      }
      request.lengths = PartOf(route.lengths, route.rows_for[r]);
    }
  }
  return requests;
}

void CountRequests(const RoutePlan& plan, const std::vector<std::vector<TableRequest>>& requests) {
  for (size_t t = 0; t < plan.counts.size(); ++t) {
    int64_t words = 0;
    for (int r = 0; r < plan.ranks; ++r) {
      if (r != plan.rank) words += RequestWords({&requests[r][t], 1});
    }
    LookupCounts::Add(plan.counts[t]->bytes_sent, words * static_cast<int64_t>(sizeof(int64_t)));
  }
}

}  // namespace

Status RouteGroup(Executor& executor, Span<Table* const> tables, Span<const Span<const int64_t>> ids,
                  RoutePlan* plan, GroupScratch* scratch) {
  plan->group.parts.resize(tables.size());
  plan->routes.resize(tables.size());
  plan->dims.clear();
  plan->types.clear();
  plan->counts.clear();
  for (const Table* table : tables) {
    plan->dims.push_back(table->options().dim);
    plan->types.push_back(table->options().record.weights);
    plan->counts.push_back(table->shared_lookup_counts());
  }
  std::vector<const LookupBags*> lookup_of(tables.size());
  for (const LookupBags& lookup : plan->group.lookups) lookup_of[lookup.table] = &lookup;
  return ForEachPart(executor, tables.size(), [&](Executor& inner, int64_t t) {
    return RouteTable(inner, *tables[t], t, lookup_of[t], ids[t], plan, scratch);
  });
}

Status WriteRequests(Span<Table* const> tables, const Status& status, const RoutePlan& plan,
                     AllocateWords allocate) {
  const int ranks = plan.ranks;
  std::vector<std::vector<TableRequest>> requests(ranks);
  if (status.ok()) requests = RequestsToOwners(tables, plan);
  std::vector<int64_t> sizes(ranks);
  for (int r = 0; r < ranks; ++r) sizes[r] = MessageWords(status, RequestWords(requests[r]));
  int64_t* words = allocate(sizes);
  if (words == nullptr) return NoMemoryForMessages();
  const std::vector<int64_t*> starts = MessageStarts(plan.rank, sizes, words);
  const MessageHeader header{MessageKind::kRequest, status, plan.group.training ? 1 : 0};
  for (int r = 0; r < ranks; ++r) {
    int64_t* payload = WriteHeader(header, starts[r]);
    if (status.ok()) WriteRequest(requests[r], payload);
  }
  if (status.ok() && plan.group.training) CountRequests(plan, requests);
  return OkStatus();
}

}  // namespace sok
