// The last part of a sharded group's backward pass, on the owners: sums the gradients of all ranks, and
// trains the rows with them.
#ifndef SOK_CC_SHARDED_SUM_GROUP_H_
#define SOK_CC_SHARDED_SUM_GROUP_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/group_training.h"
#include "cc/group/part_gradients.h"
#include "cc/sharded/message.h"
#include "cc/sharded/plans.h"

namespace sok {

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
// `divisor` >= 1, like TrainTables. steps[i].part is the table's position in the group.
Status SumAndTrain(Executor& executor, const ServedPlan& plan, const ArrivedGradients& arrived, float divisor,
                   std::string_view optimizer, Span<const TableStep> steps, GradientScratch* scratch);

}  // namespace sok

#endif  // SOK_CC_SHARDED_SUM_GROUP_H_
