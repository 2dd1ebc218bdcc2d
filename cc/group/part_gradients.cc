#include "cc/group/part_gradients.h"

namespace sok {

void PartGradients::Prepare(const LookupPlan& plan, int t, Span<const GradientRows> gradients) {
  const TablePart& part = plan.parts[t];
  trained_ = part.trained;
  GradientsOfOccurrences(plan, t, gradients, &occurrences_);
  BuildSegments(part.inverse, static_cast<int64_t>(part.unique.size()), &segments_);
}

Span<const int64_t> PartGradients::offsets() const {
  return Span<const int64_t>(segments_.offsets).subspan(0, trained_ + 1);
}

void PartGradients::Sum(Executor& executor, int64_t dim, float* grads) const {
  SegmentSum(executor, offsets(), segments_.positions, occurrences_.rows, occurrences_.scales, dim, grads);
}

SegmentSums PartGradients::Sums(Executor& executor, int64_t dim) const {
  return SegmentSums(executor, offsets(), segments_.positions, occurrences_.rows, occurrences_.scales, dim);
}

}  // namespace sok
