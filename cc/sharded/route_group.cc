#include "cc/sharded/route_group.h"

#include <algorithm>
#include <utility>

#include "cc/group/parallel_parts.h"
#include "cc/sharded/agreement.h"
#include "cc/sharded/owner_order.h"
#include "cc/sharded/request.h"

namespace sok {
namespace {

// The distinct ids of a table, each to its owner, and each occurrence's place among them; where they are to
// be counted, how often each occurs.
Status RouteRows(Executor& executor, Span<const int64_t> ids, int ranks, bool counts,
                 Deduplicator* deduplicator, TablePart* part, PartRoute* route) {
  std::vector<int64_t> unique;
  part->inverse.resize(ids.size());
  SOK_RETURN_IF_ERROR(deduplicator->Run(executor, ids, &unique, Span<int32_t>(part->inverse)));
  OwnerOrder order;
  SortByOwner(unique, ranks, &order);
  route->ids = InOwnerOrder(order, Span<const int64_t>(unique));
  for (int32_t& position : part->inverse) position = order.position[position];
  route->counts.assign(counts ? unique.size() : 0, 0);
  if (counts) {
    for (const int32_t position : part->inverse) ++route->counts[position];
  }
  route->ids_begin = order.begin;
  route->rows_begin = std::move(order.begin);
  return OkStatus();
}

// All ids of a pooled lookup, each to its owner, and for each owner the bags that it has a part of.
Status RouteSums(const Table& table, const Lookup& lookup, Span<const int64_t> ids, int ranks,
                 PartRoute* route) {
  if (ids.size() > INT32_MAX) {
    return InvalidArgument("Lookup in embedding variable '", table.options().name, "': ", ids.size(),
                           " ids are too many for one step");
  }
  OwnerOrder order;
  SortByOwner(ids, ranks, &order);
  route->ids = InOwnerOrder(order, ids);
  std::vector<int32_t> bag_of(ids.size());
  for (int64_t bag = 0; bag < lookup.num_bags(); ++bag) {
    std::fill(bag_of.begin() + lookup.offsets[bag], bag_of.begin() + lookup.offsets[bag + 1],
              static_cast<int32_t>(bag));
  }
  bag_of = InOwnerOrder(order, Span<const int32_t>(bag_of));
  route->ids_begin = std::move(order.begin);
  route->rows_begin.assign(1, 0);
  for (int r = 0; r < ranks; ++r) {
    for (int64_t i = route->ids_begin[r]; i < route->ids_begin[r + 1]; ++i) {
      if (i > route->ids_begin[r] && bag_of[i] == route->bags.back()) {
        ++route->lengths.back();
      } else {
        route->bags.push_back(bag_of[i]);
        route->lengths.push_back(1);
      }
    }
    route->rows_begin.push_back(static_cast<int64_t>(route->bags.size()));
  }
  return OkStatus();
}

// The numbers of what owner `r` is asked, of those of all owners.
std::vector<int32_t> PartFor(int r, const std::vector<int32_t>& numbers, const std::vector<int64_t>& begin) {
  if (numbers.empty()) return {};
  return {numbers.begin() + begin[r], numbers.begin() + begin[r + 1]};
}

// What this rank asks of each owner, by owner and table.
std::vector<std::vector<TableRequest>> RequestsToOwners(Span<Table* const> tables, const RoutePlan& plan) {
  std::vector<std::vector<TableRequest>> requests(plan.ranks, std::vector<TableRequest>(tables.size()));
  for (int64_t t = 0; t < tables.size(); ++t) {
    const PartRoute& route = plan.routes[t];
    const uint64_t definition = DefinitionOf(*tables[t], plan.modes[t]);
    const uint64_t optimizer = OptimizerOf(*tables[t]);
    for (int r = 0; r < plan.ranks; ++r) {
      TableRequest& request = requests[r][t];
      request.definition = definition;
      request.optimizer = optimizer;
      request.ids = Span<const int64_t>(route.ids).subspan(route.ids_begin[r],
                                                           route.ids_begin[r + 1] - route.ids_begin[r]);
      request.counts = PartFor(r, route.counts, route.ids_begin);
      request.lengths = PartFor(r, route.lengths, route.rows_begin);
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
  std::vector<TablePart>& parts = plan->lookups.parts;
  parts.resize(tables.size());
  plan->routes.resize(tables.size());
  plan->dims.clear();
  plan->counts.clear();
  for (const Table* table : tables) {
    plan->dims.push_back(table->options().dim);
    plan->counts.push_back(table->lookup_counts());
  }
  std::vector<const Lookup*> lookup_of(tables.size());
  for (const Lookup& lookup : plan->lookups.lookups) lookup_of[lookup.table] = &lookup;
  return ForEachPart(executor, tables.size(), [&](Executor& inner, int64_t t) {
    const Table& table = *tables[t];
    const bool counts = plan->lookups.training && table.counts_lookups();
    return plan->modes[t] == ExchangeMode::kRows
               ? RouteRows(inner, ids[t], plan->ranks, counts, scratch->deduplicators.Take().get(), &parts[t],
                           &plan->routes[t])
               : RouteSums(table, *lookup_of[t], ids[t], plan->ranks, &plan->routes[t]);
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
  const MessageHeader header{MessageKind::kRequest, status, plan.lookups.training ? 1 : 0};
  for (int r = 0; r < ranks; ++r) {
    int64_t* payload = WriteHeader(header, starts[r]);
    if (status.ok()) WriteRequest(requests[r], payload);
  }
  if (status.ok() && plan.lookups.training) CountRequests(plan, requests);
  return OkStatus();
}

}  // namespace sok
