// The kernel that numbers keys. The vocabulary is in four ordinary variables, which TensorFlow initializes
// and saves.
#include <array>
#include <string>

#include "cc/vocabulary/vocabulary.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "sok_ops/kernels/variable_memory.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace sok {
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

  void Compute(tf::OpKernelContext* context) override {
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

}  // namespace
}  // namespace sok
