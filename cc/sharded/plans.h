// What a group of lookups remembers between its exchanges, on the rank that asks and on the rank that owns.
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

// Some of the ids or rows of a PartRoute, which follow each other.
struct RouteRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// How one table's ids went to their owners. Of replicas the lookup reads this rank's alone, and in training
// all ranks get the ids and the gradients, so that all replicas take the same step.
struct PartRoute {
  // What is sent, each owner's together and in their order: of kRows the distinct ids, of kSums all.
  std::vector<int64_t> ids;
  int64_t rows = 0;  // that are asked for: an id's of kRows, a sum of kSums
  // By rank: its part of `ids`; the rows that it is asked for, whose gradients it gets; those of them that it
  // answers with.
  std::vector<RouteRange> ids_for;
  std::vector<RouteRange> rows_for;
  std::vector<RouteRange> rows_from;
  // Of kRows in training, where the table counts: how often each of the ids was looked up.
  std::vector<int32_t> counts;
  // Of kSums, one for each row: the bag it is a part of, and how many of its ids the owner has.
  std::vector<int32_t> bags;
  std::vector<int32_t> lengths;
};

// The asking rank's: filled by RouteGroup.
struct RoutePlan {
  int rank = 0;
  int ranks = 1;
  std::vector<ExchangeMode> modes;                    // one per table
  std::vector<int64_t> dims;                          // one per table
  std::vector<std::shared_ptr<LookupCounts>> counts;  // one per table
  // Of parts[t] only `inverse` is filled in, and only of kRows: positions in routes[t].ids. Rows have numbers
  // on their owners alone.
  LookupPlan group;
  std::vector<PartRoute> routes;  // one per table
};

// What all ranks together asked of one table, for training.
struct ServedPart {
  TablePart merged;                  // over the ids of all training ranks, in the ranks' order
  std::vector<int64_t> ids_begin;    // ranks + 1: rank r's ids are merged.inverse[ids_begin[r] ..)
  std::vector<int64_t> rows_begin;   // ranks + 1: of the rows whose gradients the ranks send, likewise
  std::vector<int64_t> row_offsets;  // kSums: row i was the sum of ids [row_offsets[i], row_offsets[i + 1])
};

// The owner's: filled by ServeGroup.
struct ServedPlan {
  // Tells the answers of one ServeGroup from those of every other: gradients come back with it.
  int64_t token = 0;
  int rank = 0;
  int ranks = 1;
  Status status;  // an error of this rank or of another; all ranks get it
  std::vector<ExchangeMode> modes;
  std::vector<ServedPart> parts;  // one per table
};

}  // namespace sok

#endif  // SOK_CC_SHARDED_PLANS_H_
