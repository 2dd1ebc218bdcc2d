#ifndef SOK_CC_GROUP_GROUP_TRAINING_H_
#define SOK_CC_GROUP_GROUP_TRAINING_H_

#include <cstdint>
#include <string_view>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/lookup_plan.h"
#include "cc/group/part_gradients.h"
#include "cc/table/table.h"

namespace sok {

// One table's step.
struct TableStep {
  int part = 0;            // position of the table in the group
  Table* table = nullptr;  // the table of that part
  Span<const float> hyper;
};

// The source of the gradients of a group's tables.
class GroupGradients {
 public:
  virtual ~GroupGradients() = default;
  // The part of table `t` of the group.
  virtual const TablePart& part(int t) const = 0;
  // Prepares the gradients of that part. Threads may call it at the same time.
  virtual void Prepare(int t, PartGradients* gradients) const = 0;
};

// Sums the gradients of some tables of a group and applies them as Table::ApplyGradients does, in one pass
// over the rows: the sum of a row's gradients goes from the cache into the row. The same bits as in two
// passes. The tables of `steps` are distinct.
//
// Locks the tables as GroupForward does. Checks all steps before taking the first: after an error of a check
// no table has changed. ResourceExhausted if memory runs out.
Status TrainTables(Executor& executor, const GroupGradients& gradients, std::string_view optimizer,
                   Span<const TableStep> steps, GradientScratch* scratch);

// TrainTables with the sums of GroupBackward: gradients[l] belongs to plan.lookups[l].
Status GroupTrain(Executor& executor, const LookupPlan& plan, Span<const GradientRows> gradients,
                  std::string_view optimizer, Span<const TableStep> steps, GradientScratch* scratch);

}  // namespace sok

#endif  // SOK_CC_GROUP_GROUP_TRAINING_H_
