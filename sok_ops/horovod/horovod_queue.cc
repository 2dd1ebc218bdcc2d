#include "sok_ops/horovod/horovod_queue.h"

#include <utility>

#include "horovod/common/operations.h"

namespace sok {
namespace {

namespace hvd = ::horovod::common;

// Horovod's view of memory that an Alltoall owns.
class TensorView final : public hvd::Tensor {
 public:
  // Horovod sees only the dimension `announced`.
  TensorView(std::shared_ptr<Alltoall> owner, hvd::DataType dtype, const void* data, int64_t bytes,
             int64_t announced)
      : owner_(std::move(owner)), dtype_(dtype), data_(data), bytes_(bytes), announced_(announced) {}

  const hvd::DataType dtype() const override { return dtype_; }
  const hvd::TensorShape shape() const override { return hvd::TensorShape({announced_}); }
  const void* data() const override { return data_; }
  int64_t size() const override { return bytes_; }

 private:
  std::shared_ptr<Alltoall> owner_;
  hvd::DataType dtype_;
  const void* data_;
  int64_t bytes_;
  int64_t announced_;
};

hvd::Status ToHorovod(const Status& status) { return hvd::Status::UnknownError(status.message()); }

// Allocates memory for Horovod.
class AlltoallContext final : public hvd::OpContext {
 public:
  explicit AlltoallContext(std::shared_ptr<Alltoall> alltoall) : alltoall_(std::move(alltoall)) {}

  hvd::Status AllocateOutput(hvd::TensorShape shape, std::shared_ptr<hvd::Tensor>* tensor,
                             std::shared_ptr<hvd::ReadyEvent>* event = nullptr) override {
    return AllocateOutput(0, shape, tensor, event);
  }

  hvd::Status AllocateOutput(int index, hvd::TensorShape shape, std::shared_ptr<hvd::Tensor>* tensor,
                             std::shared_ptr<hvd::ReadyEvent>* = nullptr) override {
    const int64_t n = shape.dim_size(0);
    if (index == 0) return View(alltoall_->AllocateReceived(n), hvd::HOROVOD_INT64, n, tensor);
    return View(alltoall_->AllocateReceivedSplits(n), hvd::HOROVOD_INT32, n, tensor);
  }

  hvd::Status AllocatePersistent(int64_t, std::shared_ptr<hvd::PersistentBuffer>*) override {
    return hvd::Status::UnknownError("an alltoall has no persistent buffer");
  }

  hvd::Status AllocateZeros(int64_t, hvd::DataType, std::shared_ptr<hvd::Tensor>*) override {
    return hvd::Status::UnknownError("an alltoall cannot stand in for a rank that joined");
  }

  hvd::Framework framework() const override { return hvd::Framework::TENSORFLOW; }

 private:
  template <typename T>
  hvd::Status View(StatusOr<T*> memory, hvd::DataType dtype, int64_t n,
                   std::shared_ptr<hvd::Tensor>* tensor) {
    if (!memory.ok()) return ToHorovod(memory.status());
    *tensor = std::make_shared<TensorView>(alltoall_, dtype, memory.value(),
                                           n * static_cast<int64_t>(sizeof(T)), n);
    return hvd::Status::OK();
  }

  std::shared_ptr<Alltoall> alltoall_;
};

Status FromHorovod(const hvd::Status& status) {
  if (status.ok()) return OkStatus();
  switch (status.type()) {
    case hvd::StatusType::PRECONDITION_ERROR:
      return FailedPrecondition(status.reason());
    case hvd::StatusType::INVALID_ARGUMENT:
      return InvalidArgument(status.reason());
    default:
      return Internal(status.reason());
  }
}

int64_t Sum(Span<const int32_t> values) {
  int64_t sum = 0;
  for (int32_t value : values) sum += value;
  return sum;
}

}  // namespace

StatusOr<HorovodPlace> GetHorovodPlace() {
  const hvd::Status initialized = hvd::CheckInitialized();
  if (!initialized.ok()) return FromHorovod(initialized);
  return HorovodPlace{hvd::horovod_rank(), hvd::horovod_size()};
}

// Horovod's classes have other members if it is built for GPUs, which these macros say.
bool IsBuiltForGpus() {
#if HAVE_GPU
  return true;
#else
  return false;
#endif
}

Status EnqueueAlltoall(const std::string& name, std::shared_ptr<Alltoall> alltoall) {
  static_assert(kHostMemory == CPU_DEVICE_ID);
  const Span<const int32_t> splits = alltoall->splits();
  const int device = alltoall->device();
  // Horovod negotiates a name on its slow path, through rank 0, whenever the shape differs from the last one.
  // It uses an alltoall's first dimension only to check that the splits do not exceed it. So every exchange
  // announces the same dimension and is negotiated on the fast path at any length, without padding.
  auto words =
      std::make_shared<TensorView>(alltoall, hvd::HOROVOD_INT64, alltoall->words(),
                                   Sum(splits) * static_cast<int64_t>(sizeof(int64_t)), kMaxAlltoallWords);
  auto counts =
      std::make_shared<TensorView>(alltoall, hvd::HOROVOD_INT32, splits.data(),
                                   static_cast<int64_t>(splits.size() * sizeof(int32_t)), splits.size());
  return FromHorovod(hvd::EnqueueTensorAlltoall(
      std::make_shared<AlltoallContext>(alltoall), std::move(words), std::move(counts), hvd::ReadyEventList(),
      name, device, [alltoall](const hvd::Status& status) { alltoall->Done(FromHorovod(status)); }));
}

}  // namespace sok
