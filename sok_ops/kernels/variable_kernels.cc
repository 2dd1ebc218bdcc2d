// Kernels that change ordinary variables in place: one numbers keys, with a vocabulary in four variables,
// which TensorFlow initializes and saves; the other trains the rows of a variable.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/cpu/dense_tables/train_rows.h"
#include "cc/vocabulary/vocabulary.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "sok_ops/kernels/tf_versions.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace sok {

// Gives a numeric variable its own memory if something else, such as a read or a constant, shares it, so that
// a kernel may change it in place. The caller holds the variable's lock for writing.
inline tensorflow::Status OwnMemory(tensorflow::OpKernelContext* context, tensorflow::Var* variable) {
  tensorflow::Tensor* shared = variable->tensor();
  if (shared->NumElements() == 0 || HasMemoryAlone(*shared)) return tensorflow::Status();
  tensorflow::Tensor own;
  TF_RETURN_IF_ERROR(context->allocate_temp(shared->dtype(), shared->shape(), &own));
  const auto bytes = shared->tensor_data();
  std::memcpy(const_cast<char*>(own.tensor_data().data()), bytes.data(), bytes.size());
  *shared = own;
  return tensorflow::Status();
}

namespace {

namespace tf = ::tensorflow;

// The variables in the order of the op's inputs, which is the order in which they are locked.
constexpr int kVariables = 4;
constexpr std::array<const char*, kVariables> kNames = {"keys", "counts", "slots", "size"};
constexpr std::array<tf::DataType, kVariables> kTypes = {tf::DT_INT64, tf::DT_INT64, tf::DT_INT32,
                                                         tf::DT_INT64};

class VocabularyLookupOp : public tf::OpKernel {
 public:
  explicit VocabularyLookupOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    std::string layer;
    OP_REQUIRES_OK(construction, construction->GetAttr("layer", &layer));
    who_ = "IntegerLookup layer '" + layer + "'";
  }

  void Compute(tf::OpKernelContext* context) override SOK_NO_THREAD_SAFETY_ANALYSIS {  // an array of locks
    Variables variables;
    for (int i = 0; i < kVariables; ++i) {
      const tf::Status found = tf::LookupResource(context, tf::HandleFromInput(context, i), &variables[i]);
      OP_REQUIRES(context, found.ok(), Uninitialized(i));
      for (int j = 0; j < i; ++j) {
        OP_REQUIRES(
            context, variables[i].get() != variables[j].get(),
            tf::errors::InvalidArgument(who_, ": ", kNames[i], " and ", kNames[j], " are one variable"));
      }
    }
    const tf::Tensor& add = context->input(kVariables + 2);
    OP_REQUIRES(context, add.dims() == 0,
                tf::errors::InvalidArgument(who_, ": `add` has shape ", add.shape().DebugString()));
    if (add.scalar<bool>()()) {
      tf::mutex_lock keys(*variables[0]->mu()), counts(*variables[1]->mu()), slots(*variables[2]->mu()),
          size(*variables[3]->mu());
      OP_REQUIRES_OK(context, Run(context, variables, /*add=*/true));
    } else {
      tf::tf_shared_lock keys(*variables[0]->mu()), counts(*variables[1]->mu()), slots(*variables[2]->mu()),
          size(*variables[3]->mu());
      OP_REQUIRES_OK(context, Run(context, variables, /*add=*/false));
    }
  }

 private:
  using Variables = std::array<tf::core::RefCountPtr<tf::Var>, kVariables>;

  tf::Status Uninitialized(int variable) const {
    return tf::errors::FailedPrecondition(who_, ": its variable of ", kNames[variable],
                                          " is not initialized. Run its initializer, or that of all global "
                                          "variables, first");
  }

  // The caller holds the variables' locks.
  tf::Status Run(tf::OpKernelContext* context, const Variables& variables, bool add) const {
    TF_RETURN_IF_ERROR(Check(variables));
    const tf::Tensor& ids = context->input(kVariables);
    const tf::Tensor& occurrences = context->input(kVariables + 1);
    if (add && occurrences.NumElements() != 0 && occurrences.NumElements() != ids.NumElements()) {
      return tf::errors::InvalidArgument(who_, ": ", occurrences.NumElements(), " occurrences of ",
                                         ids.NumElements(), " ids");
    }
    tf::Tensor* numbers = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, ids.shape(), &numbers));
    const Span<const int64_t> of_ids(ids.flat<int64_t>().data(), ids.NumElements());
    const Span<int64_t> of_numbers(numbers->flat<int64_t>().data(), ids.NumElements());
    TfExecutor executor(context);
    if (!add) {
      return WithLayer(FindInVocabulary(VocabularyOf(variables), &executor, of_ids, of_numbers));
    }
    for (const auto& variable : variables) TF_RETURN_IF_ERROR(OwnMemory(context, variable.get()));
    return WithLayer(AddToVocabulary(VocabularyOf(variables), &executor, of_ids,
                                     {occurrences.flat<int64_t>().data(), occurrences.NumElements()},
                                     of_numbers));
  }

  tf::Status Check(const Variables& variables) const {
    for (int i = 0; i < kVariables; ++i) {
      const tf::Tensor& tensor = *variables[i]->tensor();
      if (!variables[i]->is_initialized || !tensor.IsInitialized()) return Uninitialized(i);
      if (tensor.dtype() != kTypes[i] || tensor.dims() != (i == kVariables - 1 ? 0 : 1)) {
        return tf::errors::InvalidArgument(who_, ": the variable of ", kNames[i], " is of ",
                                           tf::DataTypeString(tensor.dtype()), " and shape ",
                                           tensor.shape().DebugString());
      }
    }
    return tf::Status();
  }

  static Vocabulary VocabularyOf(const Variables& variables) {
    tf::Tensor* keys = variables[0]->tensor();
    tf::Tensor* counts = variables[1]->tensor();
    tf::Tensor* slots = variables[2]->tensor();
    return {{keys->flat<int64_t>().data(), keys->NumElements()},
            {counts->flat<int64_t>().data(), counts->NumElements()},
            {slots->flat<int32_t>().data(), slots->NumElements()},
            variables[3]->tensor()->flat<int64_t>().data()};
  }

  tf::Status WithLayer(const Status& status) const {
    return status.ok() ? tf::Status() : ToTf(Status(status.code(), StrCat(who_, ": ", status.message())));
  }

  std::string who_;
};
REGISTER_KERNEL_BUILDER(Name("SokVocabularyLookup").Device(tf::DEVICE_CPU), VocabularyLookupOp);

// The kernel that trains ordinary variables, in place.

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
