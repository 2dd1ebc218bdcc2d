// For an op library that is linked with the GPU engine.
#include "sok_ops/engines/has_gpu_engine.h"

namespace sok {

bool HasGpuEngine() { return true; }

}  // namespace sok
