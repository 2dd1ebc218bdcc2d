#include <algorithm>
#include <utility>

#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/table/device_row_changes.h"

namespace sok {
namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    MarkKernel(const int64_t* rows, int64_t n, uint32_t* bits) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t row = rows[i];
    if (row >= 0) atomicOr(&bits[row / 32], 1u << (row % 32));
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    UnmarkKernel(const int64_t* rows, int64_t n, uint32_t* bits) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    atomicAnd(&bits[rows[i] / 32], ~(1u << (rows[i] % 32)));
  }
}

// out = a | b.
__global__ void __launch_bounds__(kThreadsPerBlock)
    UniteKernel(const uint32_t* a, const uint32_t* b, int64_t words, uint32_t* out) {
  AwaitPreviousKernels();
  for (int64_t w = ThreadOfGrid(); w < words; w += ThreadsOfGrid()) out[w] = a[w] | b[w];
}

Status FetchAppend(cudaStream_t stream, const int64_t* from, int64_t n, std::vector<int64_t>* to) {
  const size_t before = to->size();
  to->resize(before + static_cast<size_t>(n));
  if (n == 0) return OkStatus();
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(to->data() + before, from, static_cast<size_t>(n) * sizeof(int64_t),
                      cudaMemcpyDeviceToHost, stream),
      "cannot copy ", n, " keys from the device");
  return CudaStatus(cudaStreamSynchronize(stream), "cannot wait for the device");
}

}  // namespace

Status MarkRows(cudaStream_t stream, const int64_t* rows, int64_t n, uint32_t* bits) {
  return Launch("MarkRows", stream, ShapeFor(n), MarkKernel, rows, n, bits);
}

Status DeviceRowChanges::Start(cudaStream_t stream, int64_t rows) {
  const bool tracked_before = std::exchange(tracks_, true);
  const Status status = Reserve(stream, rows, 0);
  if (!status.ok()) tracks_ = tracked_before;
  return status;
}

Status DeviceRowChanges::Reserve(cudaStream_t stream, int64_t rows, int64_t erasures) {
  if (!tracks_) return OkStatus();
  const int64_t words = (rows + 31) / 32;
  SOK_RETURN_IF_ERROR(changed_.Reserve(stream, words));
  SOK_RETURN_IF_ERROR(saving_.Reserve(stream, words));
  return erased_.Reserve(stream, num_erased_ + erasures);
}

Status DeviceRowChanges::MarkChanged(cudaStream_t stream, const int64_t* rows, int64_t n) {
  if (!tracks_) return OkStatus();
  return MarkRows(stream, rows, n, changed_.data());
}

Status DeviceRowChanges::MarkErased(cudaStream_t stream, const int64_t* rows, const int64_t* keys,
                                    int64_t n) {
  if (!tracks_) return OkStatus();
  SOK_RETURN_IF_ERROR(Launch("MarkErased", stream, ShapeFor(n), UnmarkKernel, rows, n, changed_.data()));
  SOK_RETURN_IF_ERROR(Launch("MarkErased", stream, ShapeFor(n), UnmarkKernel, rows, n, saving_.data()));
  return Append(stream, keys, n, &erased_, &num_erased_);
}

Status DeviceRowChanges::WriteChanged(cudaStream_t stream, int64_t first_word, int64_t words,
                                      uint32_t* changed) const {
  const int64_t tracked = std::min(changed_.size(), saving_.size());
  const int64_t there = std::clamp<int64_t>(tracked - first_word, 0, words);
  if (there > 0) {
    SOK_RETURN_IF_ERROR(Launch("WriteChanged", stream, ShapeFor(there), UniteKernel,
                               changed_.data() + first_word, saving_.data() + first_word, there, changed));
  }
  if (there == words) return OkStatus();
  return CudaStatus(
      cudaMemsetAsync(changed + there, 0, static_cast<size_t>(words - there) * sizeof(uint32_t), stream),
      "cannot clear ", words - there, " words on the device");
}

Status DeviceRowChanges::FetchErased(cudaStream_t stream, std::vector<int64_t>* keys) const {
  keys->clear();
  SOK_RETURN_IF_ERROR(FetchAppend(stream, saving_erased_.data(), num_saving_erased_, keys));
  SOK_RETURN_IF_ERROR(FetchAppend(stream, erased_.data(), num_erased_, keys));
  std::sort(keys->begin(), keys->end());
  keys->erase(std::unique(keys->begin(), keys->end()), keys->end());
  return OkStatus();
}

Status DeviceRowChanges::BeginSave(cudaStream_t stream) {
  SOK_RETURN_IF_ERROR(Append(stream, erased_.data(), num_erased_, &saving_erased_, &num_saving_erased_));
  SOK_RETURN_IF_ERROR(Merge(stream, changed_, &saving_));
  num_erased_ = 0;
  return Clear(stream, &changed_);
}

Status DeviceRowChanges::EndSave(cudaStream_t stream, bool ok) {
  if (!ok) {
    SOK_RETURN_IF_ERROR(Append(stream, saving_erased_.data(), num_saving_erased_, &erased_, &num_erased_));
    SOK_RETURN_IF_ERROR(Merge(stream, saving_, &changed_));
  }
  num_saving_erased_ = 0;
  return Clear(stream, &saving_);
}

Status DeviceRowChanges::Append(cudaStream_t stream, const int64_t* from, int64_t n,
                                GrowingArray<int64_t>* to, int64_t* count) {
  if (n == 0) return OkStatus();
  SOK_RETURN_IF_ERROR(to->Reserve(stream, *count + n));
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(to->data() + *count, from, static_cast<size_t>(n) * sizeof(int64_t),
                      cudaMemcpyDeviceToDevice, stream),
      "cannot copy ", n, " keys on the device");
  *count += n;
  return OkStatus();
}

Status DeviceRowChanges::Merge(cudaStream_t stream, const GrowingArray<uint32_t>& from,
                               GrowingArray<uint32_t>* into) {
  const int64_t words = std::min(from.size(), into->size());
  return Launch("MergeChanges", stream, ShapeFor(words), UniteKernel, from.data(), into->data(), words,
                into->data());
}

Status DeviceRowChanges::Clear(cudaStream_t stream, GrowingArray<uint32_t>* bits) {
  if (bits->bytes() == 0) return OkStatus();
  return CudaStatus(cudaMemsetAsync(bits->data(), 0, static_cast<size_t>(bits->bytes()), stream),
                    "cannot clear ", bits->bytes(), " bytes on the device");
}

}  // namespace sok
