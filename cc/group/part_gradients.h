#ifndef SOK_CC_GROUP_PART_GRADIENTS_H_
#define SOK_CC_GROUP_PART_GRADIENTS_H_

#include <cstdint>

#include "cc/base/executor.h"
#include "cc/base/object_pool.h"
#include "cc/base/span.h"
#include "cc/dedup/segments.h"
#include "cc/group/lookup_passes.h"
#include "cc/group/lookup_plan.h"
#include "cc/optimizers/row_gradients.h"
#include "cc/pooling/segment_sum.h"

namespace sok {

// The gradients of one part's trained ids, each the sum over the id's occurrences, in order, of their shares
// of their bags' gradients. Memory is used again by the next Prepare.
class PartGradients {
 public:
  // Takes part `t` of the plan; what the arguments point to has to stay.
  void Prepare(const LookupPlan& plan, int t, Span<const GradientRows> gradients);

  // Writes them all: grads[u, 0..dim) of the distinct id u < trained.
  void Sum(Executor& executor, int64_t dim, float* grads) const;

  // For SummedRowGradients.
  SegmentSums Sums(Executor& executor, int64_t dim) const;
  Span<const int64_t> offsets() const;

 private:
  int64_t trained_ = 0;
  OccurrenceGradients occurrences_;
  Segments segments_;
};

// Working memory of backward passes; more than one may use it at a time.
struct GradientScratch {
  ObjectPool<PartGradients> parts;
};

// A part's gradients, summed up when the optimizer asks for them: they never lie in memory. For dims of at
// most kBlockFloats.
class SummedRowGradients final : public RowGradients {
 public:
  SummedRowGradients(Executor& executor, const PartGradients& part, int64_t dim)
      : sums_(part.Sums(executor, dim)), offsets_(part.offsets()) {}
  const float* Block(int64_t begin, int64_t end, float* scratch) const override {
    sums_.Take(begin, end, scratch);
    return scratch;
  }
  Span<const int64_t> offsets() const override { return offsets_; }

 private:
  SegmentSums sums_;
  Span<const int64_t> offsets_;
};

}  // namespace sok

#endif  // SOK_CC_GROUP_PART_GRADIENTS_H_
