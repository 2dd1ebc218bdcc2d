#include "sok_ops/kernels/tf_engine_context.h"

namespace sok {

void* DeviceStream(tensorflow::OpKernelContext* /*context*/) { return nullptr; }

StatusOr<void*> TfStreamMemory::Allocate(void* /*stream*/, int64_t /*bytes*/) {
  return Unimplemented("This build has no devices with memory of their own");
}

void TfStreamMemory::Free(void* /*stream*/, void* /*memory*/) {}

TfDeviceMemory* TfDeviceMemory::Of(tensorflow::OpKernelContext* /*context*/, void* /*stream*/) {
  return nullptr;
}

}  // namespace sok
