// Compiled for each kind of op library: with the GPU engine, and without, where TensorFlow places all ops on
// CPUs.
namespace sok {

bool HasGpuEngine() { return SOK_HAS_GPU_ENGINE; }

}  // namespace sok
