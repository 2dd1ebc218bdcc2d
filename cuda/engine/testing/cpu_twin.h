// The CPU engine next to the GPU engine, for tests.
#ifndef SOK_CUDA_ENGINE_TESTING_CPU_TWIN_H_
#define SOK_CUDA_ENGINE_TESTING_CPU_TWIN_H_

#include "cc/cpu/engine/cpu_engine.h"
#include "cc/engine/contract/engine_case.h"
#include "cc/engine/contract/table_contents.h"

namespace sok {

inline EngineCase CpuCase() {
  static CpuEngine* const engine = new CpuEngine;
  EngineCase engine_case;
  engine_case.name = "cpu";
  engine_case.engine = engine;
  return engine_case;
}

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_TESTING_CPU_TWIN_H_
