// The state of a group of lookups between its exchanges, on the asking rank and on the owners.
#ifndef SOK_CC_SHARDED_PLANS_H_
#define SOK_CC_SHARDED_PLANS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/status.h"
#include "cc/group/lookup_plan.h"
#include "cc/sharded/exchange_mode.h"
#include "cc/table/lookup_counts.h"

namespace sok {

// A range of the ids or rows of a PartRoute.
struct RouteRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// How one table's ids are routed to their owners. With replicas, the lookup reads this rank's replica only;
// in training all ranks get the ids and the gradients, so that all replicas take the same step.
struct PartRoute {
  // The ids to send, grouped by owner, otherwise in order: distinct ids for kRows, all ids for kSums.
  std::vector<int64_t> ids;
  int64_t rows = 0;  // the number of requested rows: one for each id (kRows) or each sum (kSums)
  // By rank: its range of `ids`; the range of rows that are requested from it and whose gradients it gets;
  // and the range of rows that it answers with.
  std::vector<RouteRange> ids_for;
  std::vector<RouteRange> rows_for;
  std::vector<RouteRange> rows_from;
  // kRows in training, if the table counts: how often each of the ids was looked up.
  std::vector<int32_t> counts;
  // kSums, for each row: the bag that it is a partial sum of, and how many of the bag's ids the owner has.
  std::vector<int32_t> bags;
  std::vector<int32_t> lengths;
};

// The asking rank's state, filled in by RouteGroup.
struct RoutePlan {
  int rank = 0;
  int ranks = 1;
  std::vector<ExchangeMode> modes;                    // one per table
  std::vector<int64_t> dims;                          // one per table
  std::vector<std::shared_ptr<LookupCounts>> counts;  // one per table
  // Of parts[t] only `inverse` is filled in, and only for kRows: positions in routes[t].ids. Row numbers
  // exist only on the owners.
  LookupPlan group;
  std::vector<PartRoute> routes;  // one per table
};

// What all ranks together looked up in one table for training.
struct ServedPart {
  TablePart merged;                  // over the ids of all training ranks, in the ranks' order
  std::vector<int64_t> ids_begin;    // ranks + 1: rank r's ids are merged.inverse[ids_begin[r] ..)
  std::vector<int64_t> rows_begin;   // ranks + 1: of the rows whose gradients the ranks send, likewise
  std::vector<int64_t> row_offsets;  // kSums: row i was the sum of ids [row_offsets[i], row_offsets[i + 1])
};

// The owner's state, filled in by ServeGroup.
struct ServedPlan {
  // Identifies the answers of one ServeGroup: gradients come back with it.
  int64_t token = 0;
  int rank = 0;
  int ranks = 1;
  Status status;  // an error of this rank or of another; all ranks get it
  std::vector<ExchangeMode> modes;
  std::vector<ServedPart> parts;  // one per table; none after an error
};

}  // namespace sok

#endif  // SOK_CC_SHARDED_PLANS_H_
