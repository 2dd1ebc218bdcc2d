// The part of a sharded lookup on the owners of the rows.
#ifndef SOK_CC_SHARDED_SERVE_GROUP_H_
#define SOK_CC_SHARDED_SERVE_GROUP_H_

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/group_lookup.h"
#include "cc/sharded/exchange_mode.h"
#include "cc/sharded/message.h"
#include "cc/sharded/plans.h"
#include "cc/table/table.h"

namespace sok {

// Reads the requests of all ranks, merges ids that several ranks request, finds their rows (inserts new ones
// for ranks in training), and writes the messages of exchange 2. `rank` is this rank.
//
// Every rank gets an answer. An error of any rank, a disagreement between ranks about a table, and an error
// of this rank's tables become plan->status and the answer to all ranks; then nothing is inserted, except in
// tables without an error of their own. Returns an error only if no answer could be written because
// `allocate` failed. Locks the tables in one global order.
Status ServeGroup(Executor& executor, Span<Table* const> tables, Span<const ExchangeMode> modes, int rank,
                  const Inbox& requests, ServedPlan* plan, GroupScratch* scratch, AllocateWords allocate);

}  // namespace sok

#endif  // SOK_CC_SHARDED_SERVE_GROUP_H_
