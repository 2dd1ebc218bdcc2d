#ifndef SOK_CC_CPU_GROUP_GROUP_TRAINING_H_
#define SOK_CC_CPU_GROUP_GROUP_TRAINING_H_

#include <cstdint>
#include <string_view>

#include "cc/base/executor.h"
#include "cc/base/object_pool.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/dedup/dedup.h"
#include "cc/cpu/group/lookup_passes.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/cpu/pooling/segment_sum.h"
#include "cc/engine/engine.h"

namespace sok {

// The gradients of one part's trained ids, each the sum over the id's occurrences, in order. The next Prepare
// reuses the memory. The arguments of Prepare must outlive the calls that follow it.
class PartGradients {
 public:
  // Part `t` of the plan: the gradient of an occurrence is its share of its bag's gradient.
  void Prepare(const LookupPlan& plan, int t, Span<const GradientRows> gradients);
  // Gradients rows[p] of the occurrences p of `part`. Their sums are divided by `divisor` >= 1.
  void Prepare(const TablePart& part, Span<const float* const> rows, float divisor);

  // Writes all gradients: grads[u, 0..dim) of the distinct id u < trained.
  void Sum(Executor& executor, int64_t dim, float* grads) const;

  // For SummedRowGradients.
  SegmentSums Sums(Executor& executor, int64_t dim) const;
  void DivideSums(int64_t floats, float* sums) const;
  Span<const int64_t> offsets() const;

 private:
  void Sort(const TablePart& part);

  int64_t trained_ = 0;
  OccurrenceGradients occurrences_;  // of a plan's part
  Span<const float* const> rows_;
  Span<const float> scales_;
  float divisor_ = 1.0f;
  Segments segments_;
};

// Working memory of backward passes. Concurrent calls may share it.
struct GradientScratch {
  ObjectPool<PartGradients> parts;
};

// A part's gradients, summed when the optimizer reads them, so that they are never stored. For dims of at
// most kBlockFloats.
class SummedRowGradients final : public RowGradients {
 public:
  SummedRowGradients(Executor& executor, const PartGradients& part, int64_t dim)
      : part_(part), sums_(part.Sums(executor, dim)), dim_(dim) {}
  const float* Block(int64_t begin, int64_t end, float* scratch) const override {
    sums_.Take(begin, end, scratch);
    part_.DivideSums((end - begin) * dim_, scratch);
    return scratch;
  }
  Span<const int64_t> offsets() const override { return part_.offsets(); }

 private:
  const PartGradients& part_;
  const SegmentSums sums_;
  const int64_t dim_;
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
                   Span<const EngineStep> steps, GradientScratch* scratch);

// TrainTables with the sums of GroupBackward: gradients[l] belongs to plan.lookups[l].
Status GroupTrain(Executor& executor, const LookupPlan& plan, Span<const GradientRows> gradients,
                  std::string_view optimizer, Span<const EngineStep> steps, GradientScratch* scratch);

}  // namespace sok

#endif  // SOK_CC_CPU_GROUP_GROUP_TRAINING_H_
