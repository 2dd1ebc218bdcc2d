#include <map>
#include <string>
#include <utility>

#include "cc/base/mutex.h"
#include "sok_ops/kernels/tf_engine_context.h"
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

namespace {

struct DeviceMemories {
  Mutex mutex;
  std::map<std::pair<tf::Allocator*, void*>, TfDeviceMemory> memories SOK_GUARDED_BY(mutex);
};

// What TensorFlow has given out, for an error.
std::string UseOf(tf::Allocator& allocator) {
  const auto statistics = allocator.GetStats();
  if (!statistics.has_value()) return "";
  std::string use = StrCat(": TensorFlow uses ", statistics->bytes_in_use, " bytes");
  if (statistics->bytes_limit.has_value()) use += StrCat(" of its ", *statistics->bytes_limit);
  return use;
}

}  // namespace

StatusOr<void*> TfStreamMemory::Allocate(void* /*stream*/, int64_t bytes) {
  const tf::AllocationAttributes attributes(/*retry_on_failure=*/waits_,
                                            /*allocation_will_be_logged=*/false, /*freed_by_func=*/nullptr);
  void* const memory = allocator_.AllocateRaw(256, static_cast<size_t>(bytes), attributes);
  if (memory != nullptr) return memory;
  return ResourceExhausted("cannot allocate ", bytes, " bytes on the device", UseOf(allocator_));
}

void TfStreamMemory::Free(void* /*stream*/, void* memory) { allocator_.DeallocateRaw(memory); }

TfDeviceMemory* TfDeviceMemory::Of(tf::OpKernelContext* context, void* stream) {
  if (context->op_device_context() == nullptr) return nullptr;
  static auto& all = *new DeviceMemories();
  tf::Allocator* const allocator = context->device()->GetAllocator(tf::AllocatorAttributes());
  const MutexLock lock(all.mutex);
  return &all.memories.try_emplace({allocator, stream}, allocator).first->second;
}

}  // namespace sok
