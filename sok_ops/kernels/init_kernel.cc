// The kernels of sok.Init: they compare the arguments of the ranks and store them as the session's Runtime.
#include <cstdint>
#include <string>
#include <utility>

#include "cc/base/status.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/scalars.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// The arguments of one rank, a word each, in this order.
enum Argument { kGlobalBatchSize, kSeed, kGradientDtype, kArguments };

std::string GradientDtypeName(int64_t dtype) { return tf::DataTypeString(static_cast<tf::DataType>(dtype)); }

// Without a session of this process, programs share a Runtime, and each may come with arguments of its own:
// SavedModels that TensorFlow 2 loads, and sessions of other processes on a server. If there are several
// ranks, they exchange their arguments once.
bool HasArgumentsOfItsOwn(tf::OpKernelContext* context, int ranks) {
  return context->session_state() == nullptr && ranks == 1;
}

// The batch size may have changed, as nothing depends on it.
tf::Status CheckUnchanged(const Runtime& existing, uint64_t seed, tf::DataType gradient_dtype, int ranks) {
  if (existing.seed == seed && existing.gradient_dtype == gradient_dtype && existing.ranks == ranks) {
    return tf::Status();
  }
  return tf::errors::FailedPrecondition(
      "sok.Init has run in this session with other arguments: ", existing.DebugString(), ", seed ",
      static_cast<int64_t>(existing.seed.load()), ", gradients sent as ",
      GradientDtypeName(existing.gradient_dtype));
}

class InitOp : public tf::OpKernel {
 public:
  explicit InitOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("rank", &rank_));
    OP_REQUIRES_OK(construction, construction->GetAttr("ranks", &ranks_));
    OP_REQUIRES(construction, rank_ < ranks_,
                tf::errors::InvalidArgument("sok.Init: rank ", rank_, " of ", ranks_, " ranks"));
  }

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor& arguments = context->input(0);
    OP_REQUIRES(
        context, arguments.NumElements() == int64_t{kArguments} * ranks_,
        tf::errors::InvalidArgument("sok.Init: the arguments of ", ranks_, " ranks are ",
                                    arguments.NumElements(), " words, not ", int64_t{kArguments} * ranks_));
    const int64_t* words = arguments.flat<int64_t>().data();
    OP_REQUIRES_OK(context, CheckAgreement(words));
    tf::core::RefCountPtr<Runtime> runtime(
        new Runtime(words[kGlobalBatchSize], static_cast<uint64_t>(words[kSeed]),
                    static_cast<tf::DataType>(words[kGradientDtype]), rank_, ranks_));
    tf::core::RefCountPtr<Runtime> existing;
    if (LookupRuntime(context, "", &existing).ok()) {
      if (HasArgumentsOfItsOwn(context, ranks_)) {
        existing->seed = runtime->seed.load();
        existing->gradient_dtype = runtime->gradient_dtype.load();
      }
      OP_REQUIRES_OK(context,
                     CheckUnchanged(*existing, runtime->seed, runtime->gradient_dtype, runtime->ranks));
    } else {
      OP_REQUIRES_OK(context, CreateRuntime(context, std::move(runtime)));
    }
    OP_REQUIRES_OK(context, OutputOk(context));
  }

 private:
  // All ranks compare the same words, so either all of them fail or none. The seeds may differ: rank 0's is
  // used.
  tf::Status CheckAgreement(const int64_t* words) const {
    for (int rank = 1; rank < ranks_; ++rank) {
      const int64_t* other = words + int64_t{kArguments} * rank;
      if (other[kGlobalBatchSize] != words[kGlobalBatchSize]) {
        return tf::errors::InvalidArgument(
            "sok.Init: the ranks disagree: rank 0 has global_batch_size=", words[kGlobalBatchSize], ", rank ",
            rank, " has global_batch_size=", other[kGlobalBatchSize]);
      }
      if (other[kGradientDtype] != words[kGradientDtype]) {
        return tf::errors::InvalidArgument(
            "sok.Init: the ranks disagree: rank 0 has gradient_exchange_dtype=",
            GradientDtypeName(words[kGradientDtype]), ", rank ", rank,
            " has gradient_exchange_dtype=", GradientDtypeName(other[kGradientDtype]));
      }
    }
    return tf::Status();
  }

  int rank_;
  int ranks_;
};

class InitHasRunOp : public tf::OpKernel {
 public:
  explicit InitHasRunOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("rank", &rank_));
    OP_REQUIRES_OK(construction, construction->GetAttr("ranks", &ranks_));
  }

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor& arguments = context->input(0);
    OP_REQUIRES(context, arguments.NumElements() == kArguments,
                tf::errors::InvalidArgument("sok.Init: the arguments of a rank are ", arguments.NumElements(),
                                            " words, not ", int{kArguments}));
    const int64_t* words = arguments.flat<int64_t>().data();
    tf::core::RefCountPtr<Runtime> existing;
    bool has_run = LookupRuntime(context, "", &existing).ok();
    if (has_run && HasArgumentsOfItsOwn(context, ranks_)) {
      has_run = existing->seed == static_cast<uint64_t>(words[kSeed]) &&
                existing->gradient_dtype == static_cast<tf::DataType>(words[kGradientDtype]);
    }
    if (has_run) {
      // All ranks use rank 0's seed, so only rank 0 can compare its own.
      const uint64_t seed = rank_ == 0 ? static_cast<uint64_t>(words[kSeed]) : existing->seed.load();
      OP_REQUIRES_OK(
          context, CheckUnchanged(*existing, seed, static_cast<tf::DataType>(words[kGradientDtype]), ranks_));
    }
    OP_REQUIRES_OK(context, OutputScalar(context, 0, has_run));
  }

 private:
  int rank_;
  int ranks_;
};
REGISTER_KERNEL_BUILDER(Name("SokInitHasRun").Device(tf::DEVICE_CPU), InitHasRunOp);
REGISTER_KERNEL_BUILDER(Name("SokInit").Device(tf::DEVICE_CPU), InitOp);

}  // namespace
}  // namespace sok
