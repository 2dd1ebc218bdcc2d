#include "cc/sharded/route_group.h"

#include <algorithm>

#include "cc/group/lookup_errors.h"
#include "cc/group/parallel_parts.h"
#include "cc/sharded/definition_of_table.h"
#include "cc/sharded/owner_order.h"
#include "cc/sharded/request.h"

namespace sok {
namespace {

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
Status RouteSums(const Table& table, const Lookup& lookup, Span<const int64_t> ids, PartRoute* route) {
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

Status RouteTable(Executor& executor, const Table& table, int64_t t, const Lookup* lookup,
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
    const TableFingerprints made = FingerprintsOf(DefinitionOf(*tables[t], plan.modes[t]));
    for (int r = 0; r < plan.ranks; ++r) {
      TableRequest& request = requests[r][t];
      request.made = made;
      request.ids = Span<const int64_t>(route.ids).subspan(route.ids_for[r].begin, route.ids_for[r].size());
      request.counts = PartOf(route.counts, route.ids_for[r]);
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
  plan->counts.clear();
  for (const Table* table : tables) {
    plan->dims.push_back(table->options().dim);
    plan->counts.push_back(table->lookup_counts());
  }
  std::vector<const Lookup*> lookup_of(tables.size());
  for (const Lookup& lookup : plan->group.lookups) lookup_of[lookup.table] = &lookup;
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
