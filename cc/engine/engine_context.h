#ifndef SOK_CC_ENGINE_ENGINE_CONTEXT_H_
#define SOK_CC_ENGINE_ENGINE_CONTEXT_H_

#include "cc/base/executor.h"

namespace sok {

// Where one call into an engine runs. Valid during the call.
struct EngineContext {
  // The host's threads.
  Executor& executor;
  // The stream of a device's engine (for CUDA a cudaStream_t); null for the CPU. The engine does all of its
  // work in the order of the stream, so results are ready for later work on the stream.
  void* stream = nullptr;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_ENGINE_CONTEXT_H_
