// The process's "gpu" engine. It calls nothing of CUDA, which a machine without a driver lacks.
#include <memory>

#include "cc/engine/registry.h"
#include "cuda/engine/gpu_engine.h"

namespace sok {
namespace {

[[maybe_unused]] const bool kRegistered = RegisterEngine(std::make_unique<GpuEngine>());

}  // namespace
}  // namespace sok
