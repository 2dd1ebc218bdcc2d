#ifndef SOK_SOK_OPS_ENGINES_HAS_GPU_ENGINE_H_
#define SOK_SOK_OPS_ENGINES_HAS_GPU_ENGINE_H_

namespace sok {

// Whether the op library is linked with the engine of GPUs. Each source file of this folder defines it, for
// one kind of build.
bool HasGpuEngine();

}  // namespace sok

#endif  // SOK_SOK_OPS_ENGINES_HAS_GPU_ENGINE_H_
