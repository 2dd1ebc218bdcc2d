#include "cuda/base/transfers.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "cuda/base/device_buffer.h"

namespace sok {
namespace {

// Nearly all results fit, so that the memory is pinned once.
constexpr int64_t kMinBytes = 4096;

std::atomic<int64_t> num_fetches{0};

}  // namespace

int64_t RoundTrip::count() { return num_fetches; }

StatusOr<const void*> RoundTrip::FetchBytes(cudaStream_t stream, const void* device, int64_t bytes) {
  ++num_fetches;
  if (memory_.size() < bytes) {
    StatusOr<PinnedBuffer<char>> memory =
        PinnedBuffer<char>::Allocate(std::max({kMinBytes, bytes, 2 * memory_.size()}));
    if (!memory.ok()) return memory.status();
    memory_ = std::move(memory.value());
  }
  if (bytes > 0) {
    SOK_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(memory_.data(), device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream),
        "cannot copy ", bytes, " bytes from the device");
  }
  SOK_RETURN_IF_ERROR(copied_.Record(stream));
  SOK_RETURN_IF_ERROR(copied_.Wait());
  return static_cast<const void*>(memory_.data());
}

namespace {

constexpr int64_t kMinStageBytes = 4096;

int64_t RoundUpToPowerOfTwo(int64_t n) {
  int64_t power = 1;
  while (power < n) power *= 2;
  return power;
}

}  // namespace

StagedUpload::~StagedUpload() {
  for (const Stage& stage : stages_) {
    // After an error of the device no copy runs any more.
    (void)stage.copied.Wait().ok();
  }
}

void StagedUpload::AddBytes(const void* values, int64_t bytes, const void** device) {
  const int64_t at = (num_bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  num_bytes_ = at + bytes;
  if (num_bytes_ > static_cast<int64_t>(bytes_.size())) bytes_.resize(num_bytes_);
  if (bytes > 0) std::memcpy(bytes_.data() + at, values, static_cast<size_t>(bytes));
  added_.push_back({at, device});
}

StatusOr<DeviceBuffer<char>> StagedUpload::Send(cudaStream_t stream, DeviceAllocator* allocator) {
  const std::vector<Added> added = std::exchange(added_, {});
  const int64_t bytes = std::exchange(num_bytes_, 0);
  StatusOr<DeviceBuffer<char>> buffer = DeviceBuffer<char>::Allocate(allocator, stream, bytes);
  if (!buffer.ok()) return buffer.status();
  SOK_RETURN_IF_ERROR(Copy(stream, bytes_.data(), bytes, buffer.value().data()));
  for (const Added& array : added) *array.device = buffer.value().data() + array.at;
  return buffer;
}

Status StagedUpload::Copy(cudaStream_t stream, const void* values, int64_t bytes, void* device) {
  if (bytes == 0) return OkStatus();
  SOK_ASSIGN_OR_RETURN(Stage* const stage, FreeStage(bytes));
  std::memcpy(stage->memory.data(), values, static_cast<size_t>(bytes));
  SOK_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(device, stage->memory.data(), static_cast<size_t>(bytes),
                                           cudaMemcpyHostToDevice, stream),
                           "cannot copy ", bytes, " bytes to the device");
  stage->stream = stream;
  stage->is_free = false;
  return stage->copied.Record(stream);
}

void StagedUpload::HasWaited(cudaStream_t stream) {
  for (Stage& stage : stages_) stage.is_free = stage.is_free || stage.stream == stream;
}

StatusOr<StagedUpload::Stage*> StagedUpload::FreeStage(int64_t bytes) {
  for (const bool asks : {false, true}) {
    for (Stage& stage : stages_) {
      if (stage.memory.size() < bytes) continue;
      if (stage.is_free || (asks && stage.copied.IsDone())) return &stage;
    }
  }
  SOK_ASSIGN_OR_RETURN(auto memory,
                       PinnedBuffer<char>::Allocate(std::max(kMinStageBytes, RoundUpToPowerOfTwo(bytes))));
  stages_.emplace_back();
  stages_.back().memory = std::move(memory);
  return &stages_.back();
}

}  // namespace sok
