// For an op library without the GPU engine: TensorFlow places all of its ops on CPUs.
#include "sok_ops/engines/has_gpu_engine.h"

namespace sok {

bool HasGpuEngine() { return false; }

}  // namespace sok
