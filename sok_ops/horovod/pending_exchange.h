#ifndef SOK_SOK_OPS_HOROVOD_PENDING_EXCHANGE_H_
#define SOK_SOK_OPS_HOROVOD_PENDING_EXCHANGE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "sok_ops/horovod/horovod_queue.h"
#include "sok_ops/horovod/stall_watch.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace sok {

// Counts what this process has exchanged. Thread-safe. Each number is exact, but an exchange that ends during
// a read may be counted in some numbers and not yet in others.
class ExchangeStatistics {
 public:
  static ExchangeStatistics& Global();

  // Counts one exchange of int64 words by rank `rank`, given its numbers of words to and from each rank.
  void Count(int rank, Span<const int32_t> sent, Span<const int32_t> received);

  // Exchanges, bytes sent, bytes received, bytes sent to other ranks, bytes received from other ranks.
  static constexpr int kNumbers = 5;
  std::array<int64_t, kNumbers> Read() const;

 private:
  std::array<std::atomic<int64_t>, kNumbers> numbers_{};
};

// One run of SokExchange, from its start until Horovod no longer accesses its memory.
//
// The op ends at the first of these events: Horovod's result, a cancellation of its step because of an error
// elsewhere, or a failure reported by the stall watch. Later events are ignored. After a cancellation or a
// failure Horovod may still access the exchange's memory, so the exchange owns the memory until Horovod
// releases the exchange. The kernel's context is never accessed after the op has ended.
//
// If Horovod accepts words in device memory (device_memory.h), it gets them there once they are ready.
// Otherwise they go through host memory: they are copied there before the exchange starts, and received words
// are copied to the device after its end. The op does not end while it waits or copies.
class PendingExchange final : public Alltoall,
                              public WatchedExchange,
                              public std::enable_shared_from_this<PendingExchange> {
 public:
  // `context` belongs to an op with checked inputs (words, splits) and outputs (received, received_splits).
  // It must live until `done` is called.
  PendingExchange(const std::string& name, HorovodPlace place, tensorflow::OpKernelContext* context,
                  tensorflow::AsyncOpKernel::DoneCallback done);

  // Passes the exchange to Horovod and to the stall watch, once its words are where Horovod expects them. The
  // op may end before this returns.
  void Start(int64_t stall_period_ms);

  const std::string& name() const override { return name_; }
  void FailStalled(const Status& status) override { Fail(Explain(status)); }

  const int64_t* words() const override;
  int device() const override { return device_; }
  Span<const int32_t> splits() const override;
  StatusOr<int64_t*> AllocateReceived(int64_t words) override;
  StatusOr<int32_t*> AllocateReceivedSplits(int64_t ranks) override;
  void Done(const Status& status) override;

 private:
  void Begin(int64_t stall_period_ms);
  bool WatchCancellation();
  void Fail(const tensorflow::Status& status);
  // True for the one caller that may end the op.
  bool TakeEnd() { return !ended_.exchange(true); }
  void Deliver();
  void End(const tensorflow::Status& status);
  tensorflow::Status Explain(const Status& status) const;

  const std::string name_;
  const HorovodPlace place_;
  const tensorflow::Tensor input_;  // the words to send, in the op's input
  const tensorflow::Tensor splits_;
  const bool is_staged_;  // whether words go from the device through the host's memory
  const int device_;      // whose memory Horovod sees
  const tensorflow::core::RefCountPtr<tensorflow::DeviceContext> device_context_;  // null on a CPU
  tensorflow::Allocator* const host_allocator_;
  tensorflow::Allocator* const allocator_;  // of the words that Horovod sees
  tensorflow::Tensor words_;                // to send
  tensorflow::Tensor received_;
  tensorflow::Tensor received_splits_;

  std::atomic<bool> ended_{false};
  // Accessed only by the caller that ends the op, and by Start() before the op can end.
  tensorflow::OpKernelContext* context_;
  tensorflow::AsyncOpKernel::DoneCallback done_;
  tensorflow::CancellationToken cancellation_token_ = tensorflow::CancellationManager::kInvalidToken;
};

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_PENDING_EXCHANGE_H_
