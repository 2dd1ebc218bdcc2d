// TensorFlow's ops that have kernels on GPUs, but not in TensorFlow's build for CPUs, and that optimizers and
// gradients put beside a table: without kernels for them the table would be on the CPU. Their arguments are
// in the host's memory, and the CPU's kernels do the work.
#include "tests/fake_gpu/host_kernels.h"

#include <memory>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace {

namespace tf = ::tensorflow;

// Ops without temporary memory, which would be the device's.
constexpr const char* kOps[] = {"AddV2",   "Cast",       "Mul",  "Neg",    "Pack", "Pow",
                                "RealDiv", "Reciprocal", "Sqrt", "Square", "Sub",  "ZerosLike"};

class HostKernel final : public tf::OpKernel {
 public:
  explicit HostKernel(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    tf::Status status;
    kernel_ = tf::CreateOpKernel(tf::DEVICE_CPU, construction->device(),
                                 construction->device()->GetAllocator(tf::AllocatorAttributes()),
                                 construction->def(), construction->graph_def_version(), &status);
    OP_REQUIRES_OK(construction, status);
  }

  void Compute(tf::OpKernelContext* context) override { kernel_->Compute(context); }

 private:
  std::unique_ptr<tf::OpKernel> kernel_;
};

bool AddKernels() {
  for (const char* const op : kOps) {
    const tf::OpDef* definition = nullptr;
    if (!tf::OpRegistry::Global()->LookUpOpDef(op, &definition).ok()) continue;
    tf::KernelDefBuilder builder(op);
    builder.Device(tf::DEVICE_GPU);
    for (const auto& argument : definition->input_arg()) builder.HostMemory(argument.name().c_str());
    for (const auto& argument : definition->output_arg()) builder.HostMemory(argument.name().c_str());
    tf::kernel_factory::OpKernelRegistrar(
        builder.Build(), op,
        [](tf::OpKernelConstruction* construction) -> tf::OpKernel* { return new HostKernel(construction); });
  }
  return true;
}

}  // namespace

bool AddHostKernels() {
  static const bool added = AddKernels();
  return added;
}
