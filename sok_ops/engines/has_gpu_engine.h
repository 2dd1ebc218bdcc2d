#ifndef SOK_SOK_OPS_ENGINES_HAS_GPU_ENGINE_H_
#define SOK_SOK_OPS_ENGINES_HAS_GPU_ENGINE_H_

namespace sok {

// Whether the op library is linked with the engine of GPUs. Each source of this folder defines it.
bool HasGpuEngine();

}  // namespace sok

#endif  // SOK_SOK_OPS_ENGINES_HAS_GPU_ENGINE_H_
