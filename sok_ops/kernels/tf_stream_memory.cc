#include "sok_ops/kernels/tf_stream_memory.h"

#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/core/platform/stream_executor.h"

namespace sok {

namespace tf = ::tensorflow;

namespace {

// TensorFlow's own streams hide what a plugin made; its C interface, which is for plugins, does not.
void* StreamOfPlugin(tf::OpKernelContext* context) {
  TF_Status* const status = TF_NewStatus();
  void* const stream = TF_GetStream(reinterpret_cast<TF_OpKernelContext*>(context), status);
  TF_DeleteStatus(status);
  return stream;
}

}  // namespace

void* DeviceStream(tf::OpKernelContext* context) {
  tf::DeviceContext* const device = context->op_device_context();
  if (device == nullptr || device->stream() == nullptr) return nullptr;
  if (device->IsPluggableDevice()) return StreamOfPlugin(context);
  return device->stream()->platform_specific_handle().stream;
}

StatusOr<void*> TfStreamMemory::Allocate(void* /*stream*/, int64_t bytes) {
  tf::Tensor tensor;
  SOK_RETURN_IF_ERROR(FromTf(context_->allocate_temp(tf::DT_UINT8, tf::TensorShape({bytes}), &tensor)));
  void* const memory = tensor.data();
  const MutexLock lock(mutex_);
  tensors_.emplace(memory, std::move(tensor));
  return memory;
}

void TfStreamMemory::Free(void* /*stream*/, void* memory) {
  const MutexLock lock(mutex_);
  tensors_.erase(memory);
}

}  // namespace sok
