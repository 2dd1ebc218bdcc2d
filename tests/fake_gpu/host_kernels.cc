// Kernels for TensorFlow ops that programs use next to a table. Real GPUs have these kernels, but
// TensorFlow's CPU build does not; without them, the table would be placed on the CPU. Their arguments are in
// host memory, and the CPU's kernels do the work. Their priority is low: unless something else places an op,
// it is on the CPU.
//
// They include kernels for variables. TensorFlow's own ones for plugin devices would change a variable's
// value in device memory from the host; with these kernels, the value is in host memory.
#include "tests/fake_gpu/host_kernels.h"

#include <cstdint>
#include <memory>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace {

namespace tf = ::tensorflow;

// Only ops without temporary memory, because that would be device memory.
constexpr const char* kOps[] = {"AddN",         "AddV2",
                                "All",          "AssignVariableOp",
                                "BroadcastTo",  "Cast",
                                "ConcatV2",     "Equal",
                                "Fill",         "FloorDiv",
                                "GatherV2",     "Greater",
                                "GreaterEqual", "L2Loss",
                                "Less",         "LessEqual",
                                "LogicalAnd",   "Max",
                                "Maximum",      "Minimum",
                                "Mul",          "Neg",
                                "NotEqual",     "Pack",
                                "Prod",         "ReadVariableOp",
                                "RealDiv",      "Reciprocal",
                                "Rsqrt",        "RsqrtGrad",
                                "Select",       "SelectV2",
                                "Sqrt",         "SqrtGrad",
                                "Square",       "StridedSlice",
                                "Sub",          "Sum",
                                "Tile",         "UnsortedSegmentSum",
                                "ZerosLike"};

// No strings, for which GPUs have no kernels.
constexpr tf::DataType kTypes[] = {tf::DT_BOOL,  tf::DT_DOUBLE, tf::DT_FLOAT,  tf::DT_HALF,
                                   tf::DT_INT32, tf::DT_INT64,  tf::DT_VARIANT};

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

// Adds `sign` times a value to a variable. The sum is a new tensor, because the old one may be another op's
// output.
template <typename T, int sign>
class AddToVariable final : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tf::OpKernelContext* context) override {
    tf::core::RefCountPtr<tf::Var> variable;
    OP_REQUIRES_OK(context, tf::LookupResource(context, tf::HandleFromInput(context, 0), &variable));
    const tf::Tensor& value = context->input(1);
    const tf::mutex_lock lock(*variable->mu());
    const tf::Tensor& old = *variable->tensor();
    OP_REQUIRES(context, old.IsSameSize(value), tf::errors::InvalidArgument(name(), ": shapes differ"));
    tf::AllocatorAttributes on_host;
    on_host.set_on_host(true);
    tf::Tensor sum;
    OP_REQUIRES_OK(context, context->allocate_temp(old.dtype(), old.shape(), &sum, on_host));
    const T* const terms = static_cast<const T*>(old.data());
    const T* const others = static_cast<const T*>(value.data());
    for (int64_t i = 0; i < sum.NumElements(); ++i) {
      static_cast<T*>(sum.data())[i] = terms[i] + sign * others[i];
    }
    *variable->tensor() = sum;
  }
};

// Registers a kernel for the op's attributes of `types`.
template <typename Kernel>
void Add(const char* op, tf::gtl::ArraySlice<tf::DataType> types) {
  const tf::OpDef* definition = nullptr;
  if (!tf::OpRegistry::Global()->LookUpOpDef(op, &definition).ok()) return;
  tf::KernelDefBuilder builder(op);
  builder.Device(tf::DEVICE_GPU).Priority(-1);
  for (const auto& attribute : definition->attr()) {
    if (attribute.type() == "type") builder.TypeConstraint(attribute.name().c_str(), types);
  }
  for (const auto& argument : definition->input_arg()) builder.HostMemory(argument.name().c_str());
  for (const auto& argument : definition->output_arg()) builder.HostMemory(argument.name().c_str());
  tf::kernel_factory::OpKernelRegistrar(
      builder.Build(), op,
      [](tf::OpKernelConstruction* construction) -> tf::OpKernel* { return new Kernel(construction); });
}

template <typename T>
void AddSumsOfVariables() {
  Add<AddToVariable<T, 1>>("AssignAddVariableOp", {tf::DataTypeToEnum<T>::value});
  Add<AddToVariable<T, -1>>("AssignSubVariableOp", {tf::DataTypeToEnum<T>::value});
}

bool AddKernels() {
  for (const char* const op : kOps) Add<HostKernel>(op, kTypes);
  AddSumsOfVariables<int32_t>();
  AddSumsOfVariables<int64_t>();
  AddSumsOfVariables<float>();
  AddSumsOfVariables<double>();
  return true;
}

}  // namespace

bool AddHostKernels() {
  static const bool added = AddKernels();
  return added;
}
