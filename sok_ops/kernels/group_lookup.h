#ifndef SOK_SOK_OPS_KERNELS_GROUP_LOOKUP_H_
#define SOK_SOK_OPS_KERNELS_GROUP_LOOKUP_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/engine/engine.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/state_variant.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// The output `plan` of SokGroupLookup, an input of its gradient.
struct GroupLookup {
  std::unique_ptr<GroupPlan> plan;
  GroupShape shape;
};

// Reads the GroupLookup in input `index` of a kernel on `tables`. InvalidArgument if the input is something
// else, or if it belongs to another engine.
inline tensorflow::Status ReadGroupLookup(tensorflow::OpKernelContext* context, int index,
                                          const GroupTables& tables, const GroupLookup** lookup) {
  *lookup = StateIn<GroupLookup>(context->input(index));
  if (*lookup != nullptr && &(*lookup)->plan->engine() == tables.engine) return tensorflow::Status();
  return tensorflow::errors::InvalidArgument(context->op_kernel().type_string(),
                                             ": `plan` is not the plan of a SokGroupLookup in these tables");
}

// The output `plan` of SokGroupRoute, an input of SokGroupCombine and SokGroupReduce.
struct RoutedLookup {
  std::unique_ptr<RoutedGroup> group;
  int rank = 0;
  GroupShape shape;  // without outputs if this rank's inputs were wrong
};

// The output `served` of SokGroupServe, an input of SokGroupSum and SokGroupSumApplyGradients.
struct ServedLookup {
  std::unique_ptr<ServedGroup> group;
  int rank = 0;
  std::vector<int64_t> dims;  // of the tables
};

// Engine objects that a kernel reuses from step to step, as long as its tables belong to the same engine.

// Working memory for the calls of one kernel. Several calls may run at once, since steps of one session may
// overlap. Thread-safe.
class ScratchPool {
  using Pool = ObjectPool<std::unique_ptr<EngineScratch>>;

 public:
  // Working memory of `engine`. Returns to the pool when the lease is destroyed.
  class Lease {
   public:
    Lease(Pool::Lease held, Engine* engine) : held_(std::move(held)) {
      std::unique_ptr<EngineScratch>& scratch = *held_.get();
      if (scratch == nullptr || &scratch->engine() != engine) scratch = engine->NewScratch();
    }
    EngineScratch* get() const { return held_.get()->get(); }

   private:
    Pool::Lease held_;
  };

  Lease Take(Engine* engine) { return Lease(pool_.Take(), engine); }

 private:
  Pool pool_;
};

// Like TakeShared, and makes sure that the object's plan belongs to `engine`. The object may outlive the
// kernel, since the gradient may run after the kernel is destroyed.
template <typename T>
std::shared_ptr<T> TakeWithPlan(const std::shared_ptr<ObjectPool<T>>& pool, Engine* engine) {
  std::shared_ptr<T> object = TakeShared(pool);
  if (object->plan == nullptr || &object->plan->engine() != engine) object->plan = engine->NewPlan();
  return object;
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_GROUP_LOOKUP_H_
