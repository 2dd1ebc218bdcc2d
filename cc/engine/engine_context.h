#ifndef SOK_CC_ENGINE_ENGINE_CONTEXT_H_
#define SOK_CC_ENGINE_ENGINE_CONTEXT_H_

#include "cc/base/executor.h"

namespace sok {

// What one call into an engine runs on. Valid for the call alone.
struct EngineContext {
  // The host's threads.
  Executor& executor;
  // The stream of a device's engine, in the engine's own terms (a cudaStream_t); null for the CPU. The engine
  // orders all of its work on it, so that results are ready for whatever follows on the stream.
  void* stream = nullptr;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_ENGINE_CONTEXT_H_
