// The first part of a sharded group's backward pass, on the asking rank: sends gradients to the rows' owners.
#ifndef SOK_CC_SHARDED_REDUCE_GROUP_H_
#define SOK_CC_SHARDED_REDUCE_GROUP_H_

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/lookup_passes.h"
#include "cc/sharded/gradient_format.h"
#include "cc/sharded/message.h"
#include "cc/sharded/plans.h"

namespace sok {

// Sums the gradients of each distinct id (kRows) or takes those of each bag (kSums), and writes the messages
// of exchange 3: to each rank one gradient for each row that was requested from it, in the order of the
// request, in `format`. Without training sends no gradients. gradients[l] belongs to plan.group.lookups[l];
// `replies` are those that ReadReplies accepted, whose tokens go back to their owners. The same bits for
// every executor.
Status ReduceGroup(Executor& executor, const RoutePlan& plan, Span<const GradientRows> gradients,
                   const Inbox& replies, GradientFormat format, AllocateWords allocate);

}  // namespace sok

#endif  // SOK_CC_SHARDED_REDUCE_GROUP_H_
