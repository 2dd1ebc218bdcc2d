// The kernels of the exchange ops.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "sok_ops/horovod/horovod_queue.h"
#include "sok_ops/horovod/pending_exchange.h"
#include "sok_ops/horovod/stall_watch.h"
#include "sok_ops/kernels/tf_status.h"
#include "sok_ops/kernels/tf_versions.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// Checks what Horovod and MPI do not check, or check only when the other ranks already wait for this one.
Status CheckInputs(const tf::Tensor& words, const tf::Tensor& splits, HorovodPlace place) {
  if (words.dims() != 1)
    return InvalidArgument("words must have shape [w], not ", words.shape().DebugString());
  if (splits.dims() != 1 || splits.dim_size(0) != place.size) {
    return InvalidArgument("splits must have one number for each of the ", place.size, " ranks, not shape ",
                           splits.shape().DebugString());
  }
  int64_t sum = 0;
  for (int rank = 0; rank < place.size; ++rank) {
    const int32_t split = splits.vec<int32_t>()(rank);
    if (split < 0) return InvalidArgument("splits[", rank, "] is ", split, ", below zero");
    sum += split;
  }
  if (sum > words.NumElements()) {
    return InvalidArgument("splits add up to ", sum, ", more than the ", words.NumElements(), " words");
  }
  if (sum > kMaxAlltoallWords) {
    return ResourceExhausted("splits add up to ", sum, " words; an exchange has room for ", kMaxAlltoallWords,
                             ". Use smaller batches or more ranks.");
  }
  return OkStatus();
}

class ExchangeOp final : public tf::AsyncOpKernel {
 public:
  explicit ExchangeOp(tf::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("exchange_name", &name_));
    OP_REQUIRES(context, !name_.empty(), tf::errors::InvalidArgument("exchange_name is empty"));
    const StatusOr<int64_t> period_ms = StallWatch::PeriodMs();
    OP_REQUIRES_OK(context, ToTf(period_ms.status()));
    stall_period_ms_ = period_ms.value();
  }

  void ComputeAsync(tf::OpKernelContext* context, DoneCallback done) override {
    const StatusOr<HorovodPlace> place = GetHorovodPlace();
    OP_REQUIRES_OK_ASYNC(context, Named(place.status()), done);
    OP_REQUIRES_OK_ASYNC(context, Named(CheckInputs(context->input(0), context->input(1), place.value())),
                         done);
    std::make_shared<PendingExchange>(name_, place.value(), context, std::move(done))
        ->Start(stall_period_ms_);
  }

 private:
  tf::Status Named(const Status& status) const {
    if (status.ok()) return tf::Status();
    return ToTf(Status(status.code(), StrCat("exchange '", name_, "': ", status.message())));
  }

  std::string name_;
  int64_t stall_period_ms_ = 0;
};

class ExchangeStatisticsOp final : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tf::OpKernelContext* context) override {
    tf::Tensor* output = nullptr;
    const auto numbers = ExchangeStatistics::Global().Read();
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, tf::TensorShape({ExchangeStatistics::kNumbers}), &output));
    std::copy(numbers.begin(), numbers.end(), output->vec<int64_t>().data());
  }
};

REGISTER_KERNEL_BUILDER(Name("SokExchange").Device(tf::DEVICE_CPU), ExchangeOp);
REGISTER_KERNEL_BUILDER(
    Name("SokExchange").Device(tf::DEVICE_GPU).HostMemory("splits").HostMemory("received_splits"),
    ExchangeOp);
REGISTER_KERNEL_BUILDER(Name("SokExchangeStatistics").Device(tf::DEVICE_CPU), ExchangeStatisticsOp);

}  // namespace
}  // namespace sok
