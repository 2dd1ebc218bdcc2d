#include "sok_ops/horovod/pending_exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sok_ops/horovod/device_memory.h"
#include "sok_ops/kernels/tf_status.h"
#include "sok_ops/kernels/tf_versions.h"

namespace sok {
namespace {

int64_t Bytes(Span<const int32_t> words) {
  return static_cast<int64_t>(sizeof(int64_t)) * std::accumulate(words.begin(), words.end(), int64_t{0});
}

}  // namespace

ExchangeStatistics& ExchangeStatistics::Global() {
  // Never destroyed: Horovod's thread may end an exchange while the process exits.
  static auto* const statistics = new ExchangeStatistics;
  return *statistics;
}

void ExchangeStatistics::Count(int rank, Span<const int32_t> sent, Span<const int32_t> received) {
  const int64_t own_sent = Bytes({&sent[rank], 1});
  const int64_t own_received = Bytes({&received[rank], 1});
  const int64_t amounts[kNumbers] = {1, Bytes(sent), Bytes(received), Bytes(sent) - own_sent,
                                     Bytes(received) - own_received};
  for (int i = 0; i < kNumbers; ++i) numbers_[i].fetch_add(amounts[i], std::memory_order_relaxed);
}

std::array<int64_t, ExchangeStatistics::kNumbers> ExchangeStatistics::Read() const {
  std::array<int64_t, kNumbers> read;
  std::transform(numbers_.begin(), numbers_.end(), read.begin(),
                 [](const std::atomic<int64_t>& number) { return number.load(std::memory_order_relaxed); });
  return read;
}

namespace tf = ::tensorflow;

namespace {

// The words of an exchange that are sent, without those that follow them.
tf::Tensor SentWords(tf::OpKernelContext* context) {
  const auto splits = context->input(1).vec<int32_t>();
  const int64_t sent = std::accumulate(splits.data(), splits.data() + splits.size(), int64_t{0});
  return context->input(0).Slice(0, sent);
}

tf::DeviceContext* NewReference(tf::DeviceContext* context) {
  if (context != nullptr) context->Ref();
  return context;
}

// The process's watch. Never destroyed: Horovod's thread may end a round while the process exits.
StallWatch& ProcessWatch() {
  static auto* const watch = new StallWatch(EnqueueAlltoall);
  // Ends the watch's thread at process exit. Horovod's static objects are older and so destroyed later.
  struct Stopper {
    ~Stopper() { watch->Stop(); }
  };
  static const Stopper stopper;
  return *watch;
}

}  // namespace

PendingExchange::PendingExchange(const std::string& name, HorovodPlace place, tf::OpKernelContext* context,
                                 tf::AsyncOpKernel::DoneCallback done)
    : name_(name),
      place_(place),
      input_(SentWords(context)),
      splits_(context->input(1)),
      is_staged_(HasOwnMemory(context) && !HorovodTakesDeviceMemory()),
      device_(HasOwnMemory(context) && !is_staged_ ? GpuNumber(context) : kHostMemory),
      device_context_(NewReference(context->op_device_context())),
      host_allocator_(HostAllocator(context)),
      allocator_(device_ == kHostMemory ? host_allocator_
                                        : context->get_allocator(tf::AllocatorAttributes())),
      context_(context),
      done_(std::move(done)) {}

void PendingExchange::Start(int64_t stall_period_ms) {
  const auto begin = [self = shared_from_this(), stall_period_ms](const tf::Status& status) {
    status.ok() ? self->Begin(stall_period_ms) : self->Fail(self->Explain(FromTf(status)));
  };
  if (is_staged_) {
    words_ = tf::Tensor(allocator_, tf::DT_INT64, input_.shape());
    if (!words_.IsInitialized()) {
      return Fail(Explain(ResourceExhausted("no memory for the ", input_.NumElements(), " words to send")));
    }
    return CopyToHost(context_, &input_, &words_, begin);
  }
  words_ = input_;
  if (device_ == kHostMemory) return begin(tf::Status());
  const tf::Status status = AfterKernels(context_, [begin] { begin(tf::Status()); });
  if (!status.ok()) Fail(Explain(FromTf(status)));
}

void PendingExchange::Begin(int64_t stall_period_ms) {
  // First, because the watch may end this exchange once it knows it, and then `context_` is null.
  if (!WatchCancellation()) return;
  ProcessWatch().Begin(shared_from_this(), place_.size, stall_period_ms);
  // A cancellation may have ended it before the watch knew it.
  if (ended_) return ProcessWatch().End(this);
  const Status status = EnqueueAlltoall(name_, shared_from_this());
  if (!status.ok()) Fail(Explain(status));
}

// Ends the op when its step is cancelled; false if the step has been cancelled already.
bool PendingExchange::WatchCancellation() {
  tf::CancellationManager* const manager = context_->cancellation_manager();
  if (manager == nullptr) return true;
  const auto cancelled = [self = shared_from_this()] {
    self->Fail(tf::errors::Cancelled("exchange '", self->name_, "': the step ended by an error elsewhere"));
  };
  cancellation_token_ = manager->get_cancellation_token();
  if (manager->RegisterCallback(cancellation_token_, cancelled)) return true;
  cancelled();
  return false;
}

void PendingExchange::Fail(const tf::Status& status) {
  if (TakeEnd()) End(status);
}

void PendingExchange::Done(const Status& status) {
  if (!TakeEnd()) return;
  if (!status.ok()) return End(Explain(status));
  context_->set_output(1, received_splits_);
  ExchangeStatistics::Global().Count(
      place_.rank, splits(), {received_splits_.vec<int32_t>().data(), received_splits_.NumElements()});
  Deliver();
}

// Makes what has arrived the op's output, and ends the op.
void PendingExchange::Deliver() {
  if (!is_staged_) {
    context_->set_output(0, received_);
    return End(tf::Status());
  }
  tf::Tensor* output = nullptr;
  const tf::Status allocated = context_->allocate_output(0, received_.shape(), &output);
  if (!allocated.ok()) return End(Explain(FromTf(allocated)));
  CopyToDevice(context_, &received_, output, [self = shared_from_this()](const tf::Status& status) {
    self->End(status.ok() ? status : self->Explain(FromTf(status)));
  });
}

void PendingExchange::End(const tf::Status& status) {
  if (!status.ok()) context_->SetStatus(status);
  // TryDeregisterCallback does not wait for a running cancellation, which may be the caller. Its callback
  // finds that the op has ended.
  tf::CancellationManager* const manager = context_->cancellation_manager();
  if (manager != nullptr) manager->TryDeregisterCallback(cancellation_token_);
  context_ = nullptr;
  ProcessWatch().End(this);
  // The objects that `done_` refers to are destroyed with the step. The exchange may outlive the step.
  const tf::AsyncOpKernel::DoneCallback done = std::move(done_);
  done();
}

tf::Status PendingExchange::Explain(const Status& status) const {
  return ToTf(Status(status.code(), StrCat("exchange '", name_, "' on rank ", place_.rank, " of ",
                                           place_.size, " failed: ", status.message())));
}

const int64_t* PendingExchange::words() const { return words_.vec<int64_t>().data(); }

Span<const int32_t> PendingExchange::splits() const {
  return {splits_.vec<int32_t>().data(), splits_.NumElements()};
}

StatusOr<int64_t*> PendingExchange::AllocateReceived(int64_t words) {
  if (words > kMaxAlltoallWords) {
    return ResourceExhausted(words, " words arrive at this rank; an exchange has room for ",
                             kMaxAlltoallWords, ". Use smaller batches or more ranks.");
  }
  if (device_ != kHostMemory) {
    // TensorFlow gives memory out when a kernel that used it is in the stream, and Horovod has another
    // stream.
    const tf::Status status = WaitForKernels(device_context_.get());
    if (!status.ok()) return FromTf(status);
  }
  received_ = tf::Tensor(allocator_, tf::DT_INT64, tf::TensorShape({words}));
  if (!received_.IsInitialized()) return ResourceExhausted("no memory for the ", words, " words that arrive");
  return received_.vec<int64_t>().data();
}

StatusOr<int32_t*> PendingExchange::AllocateReceivedSplits(int64_t ranks) {
  received_splits_ = tf::Tensor(host_allocator_, tf::DT_INT32, tf::TensorShape({ranks}));
  if (!received_splits_.IsInitialized()) return ResourceExhausted("no memory for ", ranks, " splits");
  return received_splits_.vec<int32_t>().data();
}

}  // namespace sok
