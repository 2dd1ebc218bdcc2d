// Of an op library without the engine of GPUs: TensorFlow then places all of its ops on CPUs.
#include "sok_ops/engines/has_gpu_engine.h"

namespace sok {

bool HasGpuEngine() { return false; }

}  // namespace sok
