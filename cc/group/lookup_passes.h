// The passes of a lookup between rows and outputs. Rows are in the table or in a message.
#ifndef SOK_CC_GROUP_LOOKUP_PASSES_H_
#define SOK_CC_GROUP_LOOKUP_PASSES_H_

#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/group/lookup_plan.h"
#include "cc/group/output_rows.h"
#include "cc/pooling/pool.h"

namespace sok {

// Writes a lookup's output. `rows` are those of the distinct ids of `part`, `dim` floats each.
void WriteOutput(Executor& executor, const Lookup& lookup, const TablePart& part,
                 Span<const float* const> rows, int64_t dim, const OutputRows& output,
                 OutputStores stores = OutputStores::kCached);

// The gradient of each occurrence of table `t`'s ids: scales[i] * *rows[i], or *rows[i] if scales is empty.
struct OccurrenceGradients {
  std::vector<const float*> rows;
  std::vector<float> scales;
};
void GradientsOfOccurrences(const LookupPlan& plan, int t, Span<const GradientRows> gradients,
                            OccurrenceGradients* result);

// The gradient of the weights of lookup `l`, in the order of the caller's ids: weight_grads[given], zeros for
// ids that are in no bag. `rows` are what the forward pass read for the distinct ids of the lookup's table.
void LookupWeightGradients(Executor& executor, const LookupPlan& plan, int l, Span<const float* const> rows,
                           int64_t dim, const GradientRows& gradient, Span<float> weight_grads);

}  // namespace sok

#endif  // SOK_CC_GROUP_LOOKUP_PASSES_H_
