// The process's "gpu" engine. Registering it does not call CUDA, so it works on a machine without a driver.
#include <memory>

#include "cc/engine/registry.h"
#include "cuda/engine/gpu_engine.h"

namespace sok {
namespace {

[[maybe_unused]] const bool kRegistered = RegisterEngine(std::make_unique<GpuEngine>());

}  // namespace
}  // namespace sok
