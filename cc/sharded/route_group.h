// The first part of a sharded lookup, on the asking rank: routes ids to their owners.
#ifndef SOK_CC_SHARDED_ROUTE_GROUP_H_
#define SOK_CC_SHARDED_ROUTE_GROUP_H_

#include <cstdint>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/group_lookup.h"
#include "cc/sharded/message.h"
#include "cc/sharded/plans.h"
#include "cc/table/table.h"

namespace sok {

// Sorts each table's ids by owner, according to its placement; ids of kRows tables are merged first. Reads
// rank, ranks, modes, the lookups and the training flag of `plan`, and fills in the rest; ids[t] are as for
// GroupForward. A kSums table has exactly one lookup in the group, pooled and without weights. Does not lock
// the tables.
Status RouteGroup(Executor& executor, Span<Table* const> tables, Span<const Span<const int64_t>> ids,
                  RoutePlan* plan, GroupScratch* scratch);

// Writes the messages of exchange 1. If `status` is an error the messages carry it, and only `rank`, `ranks`
// and the training flag of `plan` are read. Otherwise locks the tables, one after the other.
// ResourceExhausted if `allocate` fails.
Status WriteRequests(Span<Table* const> tables, const Status& status, const RoutePlan& plan,
                     AllocateWords allocate);

}  // namespace sok

#endif  // SOK_CC_SHARDED_ROUTE_GROUP_H_
