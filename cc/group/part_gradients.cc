#include "cc/group/part_gradients.h"

#include "cc/base/vectorize.h"
#include "cc/pooling/vector_math.h"

namespace sok {

void PartGradients::Prepare(const LookupPlan& plan, int t, Span<const GradientRows> gradients) {
  if (plan.parts[t].trained > 0) {
    GradientsOfOccurrences(plan, t, gradients, &occurrences_);
  } else {  // no id is trained, and the ids may not be merged
    occurrences_.rows.clear();
    occurrences_.scales.clear();
  }
  rows_ = occurrences_.rows;
  scales_ = occurrences_.scales;
  divisor_ = 1.0f;
  Sort(plan.parts[t]);
}

void PartGradients::Prepare(const TablePart& part, Span<const float* const> rows, float divisor) {
  rows_ = rows;
  scales_ = {};
  divisor_ = divisor;
  Sort(part);
}

void PartGradients::Sort(const TablePart& part) {
  trained_ = part.trained;
  BuildSegments(part.inverse, static_cast<int64_t>(part.unique.size()), &segments_);
}

Span<const int64_t> PartGradients::offsets() const {
  return Span<const int64_t>(segments_.offsets).subspan(0, trained_ + 1);
}

void PartGradients::Sum(Executor& executor, int64_t dim, float* grads) const {
  SegmentSum(executor, offsets(), segments_.positions, rows_, scales_, dim, grads);
  if (divisor_ == 1.0f) return;
  executor.ParallelFor(trained_, dim, [&](int64_t first, int64_t last) {
    DivideSums((last - first) * dim, grads + first * dim);
  });
}

SegmentSums PartGradients::Sums(Executor& executor, int64_t dim) const {
  return SegmentSums(executor, offsets(), segments_.positions, rows_, scales_, dim);
}

void PartGradients::DivideSums(int64_t floats, float* sums) const {
  if (divisor_ == 1.0f) return;
  RunVectorized([&] { Divide(divisor_, floats, sums); });
}

}  // namespace sok
