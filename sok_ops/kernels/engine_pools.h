// Engine objects that a kernel reuses from step to step, as long as its tables belong to the same engine.
#ifndef SOK_SOK_OPS_KERNELS_ENGINE_POOLS_H_
#define SOK_SOK_OPS_KERNELS_ENGINE_POOLS_H_

#include <memory>
#include <utility>

#include "cc/base/object_pool.h"
#include "cc/engine/engine.h"

namespace sok {

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

#endif  // SOK_SOK_OPS_KERNELS_ENGINE_POOLS_H_
