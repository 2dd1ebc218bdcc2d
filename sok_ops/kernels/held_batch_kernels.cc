// Kernels that hold a batch of tensors from one run of a session to the next.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/state_variant.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// One batch, or none. Thread-safe.
class HeldBatch : public tf::ResourceBase {
 public:
  std::string DebugString() const override { return "a batch held for the next step"; }

  // False if a batch is held already, unless it may be replaced.
  bool Hold(std::vector<tf::Tensor> values, bool replaces) {
    const MutexLock lock(mutex_);
    if (values_.has_value() && !replaces) return false;
    values_ = std::move(values);
    return true;
  }

  std::optional<std::vector<tf::Tensor>> Take() {
    const MutexLock lock(mutex_);
    return std::exchange(values_, std::nullopt);
  }

 private:
  Mutex mutex_;
  std::optional<std::vector<tf::Tensor>> values_ SOK_GUARDED_BY(mutex_);
};

tf::Status BatchOf(tf::OpKernelContext* context, const std::string& name,
                   tf::core::RefCountPtr<HeldBatch>* batch) {
  HeldBatch* found = nullptr;
  TF_RETURN_IF_ERROR(context->resource_manager()->LookupOrCreate<HeldBatch>("sok_held_batches", name, &found,
                                                                            [](HeldBatch** made) {
                                                                              *made = new HeldBatch();
                                                                              return tf::Status();
                                                                            }));
  batch->reset(found);
  return tf::Status();
}

class HoldBatchOp : public tf::OpKernel {
 public:
  explicit HoldBatchOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("name_of_batch", &name_));
    bool begins = false;
    OP_REQUIRES_OK(construction, construction->GetAttr("begins", &begins));
    replaces_ = begins;
  }

  void Compute(tf::OpKernelContext* context) override {
    tf::core::RefCountPtr<HeldBatch> batch;
    OP_REQUIRES_OK(context, BatchOf(context, name_, &batch));
    std::vector<tf::Tensor> values;
    for (int i = 0; i < context->num_inputs(); ++i) values.push_back(context->input(i));
    OP_REQUIRES(context, batch->Hold(std::move(values), replaces_.exchange(false)),
                tf::errors::FailedPrecondition(
                    name_, " holds a batch already: run `prime` once, before the first step, and `advance` ",
                    "once with every step"));
  }

 private:
  std::string name_;
  // Kernels are those of one session; the resources of a server outlive it.
  std::atomic<bool> replaces_;
};
REGISTER_KERNEL_BUILDER(Name("SokHoldBatch").Device(tf::DEVICE_CPU), HoldBatchOp);

class TakeBatchOp : public tf::OpKernel {
 public:
  explicit TakeBatchOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("name_of_batch", &name_));
  }

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor& has_next = context->input(0);
    OP_REQUIRES(context, has_next.NumElements() == 1,
                tf::errors::InvalidArgument(name_, ": has_next has shape ", has_next.shape().DebugString(),
                                            ", not []"));
    tf::core::RefCountPtr<HeldBatch> batch;
    OP_REQUIRES_OK(context, BatchOf(context, name_, &batch));
    const std::optional<std::vector<tf::Tensor>> values = batch->Take();
    OP_REQUIRES(
        context, values.has_value() || has_next.flat<bool>()(0),
        tf::errors::OutOfRange("End of sequence: ", name_, " holds no batch, and the input has no other"));
    OP_REQUIRES(context, values.has_value(),
                tf::errors::FailedPrecondition(
                    name_, " holds no batch: run `prime` before the first step, and after a step that ",
                    "failed, and `advance` with every step"));
    OP_REQUIRES(context, static_cast<int>(values->size()) == context->num_outputs(),
                tf::errors::InvalidArgument(name_, " holds ", values->size(), " tensors, not ",
                                            context->num_outputs()));
    for (int i = 0; i < context->num_outputs(); ++i) {
      const tf::Tensor& value = (*values)[i];
      OP_REQUIRES(
          context, value.dtype() == context->expected_output_dtype(i),
          tf::errors::InvalidArgument(name_, ": tensor ", i, " is ", tf::DataTypeString(value.dtype()),
                                      ", not ", tf::DataTypeString(context->expected_output_dtype(i))));
      context->set_output(i, value);
    }
  }

 private:
  std::string name_;
};
REGISTER_KERNEL_BUILDER(Name("SokTakeBatch").Device(tf::DEVICE_CPU), TakeBatchOp);

// Words where they are. Their memory is used in the order of the device's one stream of kernels.
struct KeptWords {
  tf::Tensor words;
};

class KeepWordsOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tf::OpKernelContext* context) override {
    OP_REQUIRES_OK(context,
                   OutputState(context, 0, std::make_shared<KeptWords>(KeptWords{context->input(0)})));
  }
};
SOK_KERNEL(KeepWordsOp, "SokKeepWords", "kept");

class KeptWordsOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tf::OpKernelContext* context) override {
    const auto* const kept = StateIn<KeptWords>(context->input(0));
    OP_REQUIRES(context, kept != nullptr,
                tf::errors::InvalidArgument(name(), ": the input is no output of SokKeepWords"));
    context->set_output(0, kept->words);
  }
};
SOK_KERNEL(KeptWordsOp, "SokKeptWords", "kept");

}  // namespace
}  // namespace sok
