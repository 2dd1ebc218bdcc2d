// Of an op library that is linked with the engine of GPUs.
#include "sok_ops/engines/has_gpu_engine.h"

namespace sok {

bool HasGpuEngine() { return true; }

}  // namespace sok
