// The last part of a sharded lookup, on the asking rank: combines the received rows into outputs.
#ifndef SOK_CC_SHARDED_COMBINE_GROUP_H_
#define SOK_CC_SHARDED_COMBINE_GROUP_H_

#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/lookup_passes.h"
#include "cc/sharded/message.h"
#include "cc/sharded/plans.h"
#include "cc/table/table.h"

namespace sok {

// The received rows, as pointers into the messages: [t][i] is the row of id i of plan.routes[t].ids (kRows),
// or the partial sum of bag plan.routes[t].bags[i] (kSums).
using ReceivedRows = std::vector<std::vector<const float*>>;

// Reads the answers of all owners. If any rank had an error, every rank returns that error. If ranks disagree
// about a table, the text describes this rank's table, which it locks, unless `tables` is empty.
Status ReadReplies(Span<Table* const> tables, const RoutePlan& plan, const Inbox& replies,
                   ReceivedRows* received);

// Writes every lookup's output; outputs[l] belongs to plan.group.lookups[l]. The same bits for every
// executor.
Status CombineGroup(Executor& executor, const RoutePlan& plan, const ReceivedRows& received,
                    Span<const OutputRows> outputs);

}  // namespace sok

#endif  // SOK_CC_SHARDED_COMBINE_GROUP_H_
