// The kernel that trains ordinary variables, in place.
#include <algorithm>
#include <string>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/cpu/dense_tables/train_rows.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "sok_ops/kernels/variable_memory.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

class TrainRowsOp : public tf::OpKernel {
 public:
  explicit TrainRowsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    std::string name, optimizer;
    OP_REQUIRES_OK(construction, construction->GetAttr("variable_name", &name));
    OP_REQUIRES_OK(construction, construction->GetAttr("optimizer", &optimizer));
    who_ = "Variable '" + name + "'";
    auto rule = FindDenseRule(optimizer);
    OP_REQUIRES_OK(construction, Named(rule.status()));
    rule_ = rule.value();
  }

  void Compute(tf::OpKernelContext* context) override {
    const int num_slots = context->num_inputs() - 4;
    std::vector<tf::core::RefCountPtr<tf::Var>> variables(1 + num_slots);
    for (int i = 0; i <= num_slots; ++i) {
      const tf::Status found = tf::LookupResource(context, tf::HandleFromInput(context, i), &variables[i]);
      OP_REQUIRES(context, found.ok(), Uninitialized(i));
    }
    // In one order everywhere, so that steps that run at once do not wait for each other in a circle.
    std::vector<tf::Var*> in_order;
    for (const auto& variable : variables) in_order.push_back(variable.get());
    std::sort(in_order.begin(), in_order.end());
    OP_REQUIRES(context, std::adjacent_find(in_order.begin(), in_order.end()) == in_order.end(),
                tf::errors::InvalidArgument(who_, " and its slots are not different variables"));
    std::vector<tf::mutex_lock> locks;
    locks.reserve(in_order.size());
    for (tf::Var* variable : in_order) locks.emplace_back(*variable->mu());
    OP_REQUIRES_OK(context, Train(context, variables));
  }

 private:
  using Variables = std::vector<tf::core::RefCountPtr<tf::Var>>;

  std::string NameOf(int variable) const {
    return variable == 0 ? who_ : who_ + ": its slot '" + rule_.info->slots[variable - 1].name + "'";
  }

  tf::Status Uninitialized(int variable) const {
    return tf::errors::FailedPrecondition(NameOf(variable),
                                          " is not initialized. Run its initializer, or that of all global "
                                          "variables, first");
  }

  tf::Status Named(const Status& status) const {
    return status.ok() ? tf::Status() : ToTf(Status(status.code(), StrCat(who_, ": ", status.message())));
  }

  // The caller holds the variables' locks.
  tf::Status Train(tf::OpKernelContext* context, const Variables& variables) {
    const int num_slots = static_cast<int>(variables.size()) - 1;
    const tf::Tensor& hyper = context->input(1 + num_slots);
    const tf::Tensor& rows = context->input(2 + num_slots);
    const tf::Tensor& gradients = context->input(3 + num_slots);
    TF_RETURN_IF_ERROR(CheckVariables(variables));
    const tf::TensorShape& shape = variables[0]->tensor()->shape();
    if (hyper.dims() != 1 || rows.dims() != 1 || gradients.dims() != 2 ||
        gradients.dim_size(0) != rows.dim_size(0) || gradients.dim_size(1) != shape.dim_size(1)) {
      return tf::errors::InvalidArgument(
          who_, " of shape ", shape.DebugString(), ": hyper-parameters, rows and gradients have the shapes ",
          hyper.shape().DebugString(), ", ", rows.shape().DebugString(), " and ",
          gradients.shape().DebugString(), ", not [h], [m] and [m, ", shape.dim_size(1), "]");
    }
    DenseTable table;
    table.rows = shape.dim_size(0);
    table.dim = shape.dim_size(1);
    std::vector<float*> slots;
    for (const auto& variable : variables) {
      TF_RETURN_IF_ERROR(OwnMemory(context, variable.get()));
      slots.push_back(variable->tensor()->flat<float>().data());
    }
    table.weights = slots[0];
    table.slots = Span<float* const>(slots.data() + 1, num_slots);
    TfExecutor executor(context);
    auto scratch = scratch_.Take();
    return Named(TrainRows(executor, rule_, {hyper.flat<float>().data(), hyper.NumElements()}, table,
                           {rows.flat<int64_t>().data(), rows.NumElements()}, gradients.flat<float>().data(),
                           scratch.get()));
  }

  tf::Status CheckVariables(const Variables& variables) const {
    if (variables.size() != 1 + rule_.info->slots.size()) {
      return tf::errors::InvalidArgument(who_, ": optimizer '", rule_.info->name, "' has ",
                                         rule_.info->slots.size(), " slots, not ", variables.size() - 1);
    }
    for (size_t i = 0; i < variables.size(); ++i) {
      const tf::Tensor& tensor = *variables[i]->tensor();
      if (!variables[i]->is_initialized || !tensor.IsInitialized()) return Uninitialized(static_cast<int>(i));
      if (tensor.dtype() != tf::DT_FLOAT || tensor.dims() != 2 ||
          tensor.shape() != variables[0]->tensor()->shape()) {
        return tf::errors::InvalidArgument(
            NameOf(static_cast<int>(i)), " is of ", tf::DataTypeString(tensor.dtype()), " and shape ",
            tensor.shape().DebugString(), ", not a matrix of floats, of one shape with its slots");
      }
    }
    return tf::Status();
  }

  std::string who_;
  DenseRule rule_;
  // Steps of one session may overlap.
  ObjectPool<TrainRowsScratch> scratch_;
};
REGISTER_KERNEL_BUILDER(Name("SokTrainRows").Device(tf::DEVICE_CPU), TrainRowsOp);

}  // namespace
}  // namespace sok
