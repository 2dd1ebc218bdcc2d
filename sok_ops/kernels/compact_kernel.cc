// The kernel that merges chains of checkpoints into one full checkpoint.
#include <string>

#include "cc/base/printable.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/engine/registry.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

class CompactCheckpointOp : public tf::OpKernel {
 public:
  explicit CompactCheckpointOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("tables", &parts_.tables));
    OP_REQUIRES_OK(construction, construction->GetAttr("for_serving", &parts_.for_serving));
  }

  void Compute(tf::OpKernelContext* context) override {
    SaveRequest request;
    std::string checkpoint;
    OP_REQUIRES_OK(context, Scalar(context, 0, "checkpoint", &checkpoint));
    OP_REQUIRES_OK(context, Scalar(context, 1, "prefix", &request.prefix));
    OP_REQUIRES_OK(context, Scalar(context, 2, "id", &request.id));
    const StatusOr<Engine*> engine = FindEngine("cpu");
    OP_REQUIRES_OK(context, ToTf(engine.status()));
    const TfEngineContext call(context);
    const Status status = CompactCheckpoint(*call, engine.value(), checkpoint, request, parts_);
    OP_REQUIRES_OK(context, Output(context, 0, Printable(status.message())));
  }

 private:
  static tf::Status Output(tf::OpKernelContext* context, int index, const std::string& value) {
    tf::Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(index, tf::TensorShape({}), &output));
    output->scalar<tf::tstring>()() = value;
    return tf::Status();
  }
  static tf::Status Scalar(tf::OpKernelContext* context, int index, const char* name, std::string* value) {
    const tf::Tensor& input = context->input(index);
    if (input.dims() != 0) {
      return tf::errors::InvalidArgument("`", name, "` has shape ", input.shape().DebugString(), ", not []");
    }
    *value = input.scalar<tf::tstring>()();
    return tf::Status();
  }

  CompactionParts parts_;
};
REGISTER_KERNEL_BUILDER(Name("SokCompactCheckpoint").Device(tf::DEVICE_CPU), CompactCheckpointOp);

}  // namespace
}  // namespace sok
