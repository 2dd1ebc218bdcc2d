// The state of a group of lookups between its exchanges, on the asking rank and on the owners.
#ifndef SOK_CC_CPU_SHARDED_SHARDED_GROUP_H_
#define SOK_CC_CPU_SHARDED_SHARDED_GROUP_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/mutex.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/group/group_lookup.h"
#include "cc/cpu/group/group_training.h"
#include "cc/cpu/group/lookup_passes.h"
#include "cc/cpu/table/table.h"
#include "cc/engine/engine_table.h"
#include "cc/messages/agreement.h"
#include "cc/messages/message.h"

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
  std::vector<FloatType> types;                       // of the rows, one per table
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
  Status status;                                      // an error of this rank or of another; all ranks get it
  std::vector<ExchangeMode> modes;                    // one per table
  std::vector<std::shared_ptr<LookupCounts>> counts;  // one per table
  std::vector<ServedPart> parts;                      // one per table; none after an error
};

// Takes the table's lock. Points to its options.
inline TableDefinition DefinitionOf(const Table& table, ExchangeMode mode) {
  const MutexLock lock(table.mutex());
  return {&table.options(), table.definition_fingerprint(), mode, table.optimizer_name()};
}

// The first part of a sharded lookup, on the asking rank: routes ids to their owners.

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

// The part of a sharded lookup on the owners of the rows.

// Reads the requests of all ranks, merges ids that several ranks request, finds their rows (inserts new ones
// for ranks in training), and writes the messages of exchange 2. `rank` is this rank.
//
// Every rank gets an answer. An error of any rank, a disagreement between ranks about a table, and an error
// of this rank's tables become plan->status and the answer to all ranks; then nothing is inserted, except in
// tables without an error of their own. Returns an error only if no answer could be written because
// `allocate` failed. Locks the tables in one global order.
Status ServeGroup(Executor& executor, Span<Table* const> tables, Span<const ExchangeMode> modes, int rank,
                  const Inbox& requests, ServedPlan* plan, GroupScratch* scratch, AllocateWords allocate);

// The last part of a sharded lookup, on the asking rank: combines the received rows into outputs.

// The received rows, as pointers into the messages: [t][i] is the row of id i of plan.routes[t].ids (kRows),
// or the partial sum of bag plan.routes[t].bags[i] (kSums), which is of floats.
using ReceivedRows = std::vector<RowPointerList>;

// Reads the answers of all owners. If any rank had an error, every rank returns that error. If ranks disagree
// about a table, the text describes this rank's table, which it locks, unless `tables` is empty.
Status ReadReplies(Span<Table* const> tables, const RoutePlan& plan, const Inbox& replies,
                   ReceivedRows* received);

// Writes every lookup's output; outputs[l] belongs to plan.group.lookups[l]. The same bits for every
// executor.
Status CombineGroup(Executor& executor, const RoutePlan& plan, const ReceivedRows& received,
                    Span<const OutputRows> outputs);

// The first part of a sharded group's backward pass, on the asking rank: sends gradients to the rows' owners.

// Sums the gradients of each distinct id (kRows) or takes those of each bag (kSums), and writes the messages
// of exchange 3: to each rank one gradient for each row that was requested from it, in the order of the
// request, in `format`. Without training sends no gradients. gradients[l] belongs to plan.group.lookups[l];
// `replies` are those that ReadReplies accepted, whose tokens go back to their owners. The same bits for
// every executor.
Status ReduceGroup(Executor& executor, const RoutePlan& plan, Span<const GradientRows> gradients,
                   const Inbox& replies, GradientFormat format, AllocateWords allocate);

// The last part of a sharded group's backward pass, on the owners: sums the gradients of all ranks, and
// trains the rows with them.

// The received gradients of all ranks: rows[t][p] is that of occurrence p of plan.parts[t].merged.
struct ArrivedGradients {
  std::vector<std::vector<const float*>> rows;  // into the messages, or into `decoded`
  std::vector<std::vector<float>> decoded;      // by rank: gradients that were not sent as float32
};

// Reads the messages of exchange 3. `plan` comes from the ServeGroup of the same step, and its status is OK;
// dims[t] is the number of floats of a row. FailedPrecondition if a rank's gradients belong to another step,
// because its session did not run the same steps as this one's; Internal if their sizes do not fit.
Status ReadGradients(const ServedPlan& plan, Span<const int64_t> dims, const Inbox& messages,
                     ArrivedGradients* arrived);

// In grads_out[t], row u becomes the sum of all gradients of plan.parts[t].merged.unique[u], one of the first
// merged.trained, in the order of the ranks and of each rank's occurrences. A null grads_out[t] skips table
// t. The same bits for every executor. ResourceExhausted if memory runs out.
Status SumGradients(Executor& executor, const ServedPlan& plan, const ArrivedGradients& arrived,
                    Span<const int64_t> dims, Span<float* const> grads_out, GradientScratch* scratch);

// SumGradients and Table::ApplyGradients of some tables in one pass over their rows, with the sums divided by
// `divisor` >= 1, like TrainTables. steps[i].position is the table's position in the group.
Status SumAndTrain(Executor& executor, const ServedPlan& plan, const ArrivedGradients& arrived, float divisor,
                   std::string_view optimizer, Span<const EngineStep> steps, GradientScratch* scratch);

}  // namespace sok

#endif  // SOK_CC_CPU_SHARDED_SHARDED_GROUP_H_
