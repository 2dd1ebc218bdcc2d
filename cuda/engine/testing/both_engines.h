// Test support for programs that run both engines through the same steps.
#ifndef SOK_CUDA_ENGINE_TESTING_BOTH_ENGINES_H_
#define SOK_CUDA_ENGINE_TESTING_BOTH_ENGINES_H_

#include "cc/engine/contract/engine_case.h"

namespace sok {

// With all optimizers.
const EngineCase& CpuEngineOfTests();
const EngineCase& GpuEngineOfTests();

// Sets EngineOfTests() (cc/engine/contract/engine_case.h) to one of them while this object lives;
// otherwise it is the GPU's. One thread at a time.
class UseEngine {
 public:
  explicit UseEngine(const EngineCase& engine_case);
  ~UseEngine();
  UseEngine(const UseEngine&) = delete;
  UseEngine& operator=(const UseEngine&) = delete;

 private:
  const EngineCase* const before_;
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_TESTING_BOTH_ENGINES_H_
