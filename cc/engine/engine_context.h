#ifndef SOK_CC_ENGINE_ENGINE_CONTEXT_H_
#define SOK_CC_ENGINE_ENGINE_CONTEXT_H_

#include <cstdint>

#include "cc/base/executor.h"
#include "cc/base/status.h"

namespace sok {

// Memory of a device, in the order of a stream: later work on the stream may use it after Allocate, and
// earlier work may use it before Free. Thread-safe.
class StreamMemory {
 public:
  virtual ~StreamMemory() = default;
  // `bytes` > 0, aligned to 256 bytes. ResourceExhausted if memory runs out.
  virtual StatusOr<void*> Allocate(void* stream, int64_t bytes) = 0;
  virtual void Free(void* stream, void* memory) = 0;
};

// Where one call into an engine runs. Valid during the call.
struct EngineContext {
  // The host's threads.
  Executor& executor;
  // The stream of a device's engine (for CUDA a cudaStream_t); null for the CPU. The engine does all of its
  // work in the order of the stream, so results are ready for later work on the stream.
  void* stream = nullptr;
  // For a device's engine: where it allocates memory that only this call needs. Null: the engine's own.
  StreamMemory* memory = nullptr;
  // The same for memory that the engine keeps: of tables, and from step to step. It comes with one stream
  // only, and lives as long as the engine. Null: the engine's own.
  StreamMemory* kept_memory = nullptr;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_ENGINE_CONTEXT_H_
