#include <algorithm>
#include <utility>

#include "cuda/base/device_buffer.h"
#include "cuda/base/part_launch.h"
#include "cuda/training/device_adam_history.h"

namespace sok {
namespace {

// What AdamHistory::Append does, in device memory.
struct AppendPart {
  double* coefficients;
  const double* increments;
  float* alphas;
  int64_t steps;  // this one included
  int terms;
  float alpha;
  PartPlace place;
};

// One thread per coefficient that the step changes, and at least one thread.
__global__ void __launch_bounds__(kThreadsPerBlock)
    AppendStep(const __grid_constant__ PartBatch<AppendPart> batch) {
  AwaitPreviousKernels();
  const AppendPart& part = PartOfBlock(batch);
  const int64_t item = LaneGroup(part.place).item();
  if (item >= part.place.items) return;
  if (item == 0) part.alphas[part.steps - 1] = part.alpha;
  if (part.terms == 0) return;
  const int64_t lag = item / part.terms + 1;
  const int64_t term = item % part.terms;
  part.coefficients[(part.steps - lag) * part.terms + term] +=
      static_cast<double>(part.alpha) * part.increments[item];
}

// Replaces an array by a larger one: the same values, followed by zeros.
template <typename T>
Status Grow(cudaStream_t stream, DeviceAllocator* memory, int64_t used, int64_t size,
            DeviceBuffer<T>* buffer) {
  SOK_ASSIGN_OR_RETURN(auto larger, DeviceBuffer<T>::Allocate(memory, stream, size));
  T* const data = larger.data();
  if (size > 0) {
    SOK_RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(data + used, 0, static_cast<size_t>(size - used) * sizeof(T), stream),
        "cannot clear a history");
  }
  if (used > 0) {
    SOK_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(data, buffer->data(), static_cast<size_t>(used) * sizeof(T),
                                             cudaMemcpyDeviceToDevice, stream),
                             "cannot move a history");
  }
  buffer->set_stream(stream);
  *buffer = std::move(larger);
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<DeviceAdamHistory>> DeviceAdamHistory::Make(cudaStream_t stream,
                                                                     DeviceAllocator* memory,
                                                                     StagedUpload* upload, float beta1,
                                                                     float beta2, Span<const float> alphas) {
  std::unique_ptr<DeviceAdamHistory> history(new DeviceAdamHistory(memory, beta1, beta2));
  AdamHistory host(beta1, beta2);
  for (const float alpha : alphas) host.Append(alpha);
  history->view_ = host.view();
  const AdamHistoryView from = host.view();
  const Powers tables[] = {from.beta1_powers, from.beta2_powers};
  SOK_ASSIGN_OR_RETURN(history->powers_,
                       DevicePowers::Send(stream, memory, upload, Span<const Powers>(tables, 2)));
  history->view_.beta1_powers = history->powers_[0];
  history->view_.beta2_powers = history->powers_[1];

  const AdamSeries& series = history->series_;
  if (series.terms() > 0) {
    upload->Add(Span<const double>(series.increments(1), series.horizon() * series.terms()),
                &history->increments_);
    SOK_ASSIGN_OR_RETURN(history->increments_memory_, upload->Send(stream, memory));
  }
  SOK_RETURN_IF_ERROR(history->Reserve(stream, alphas.size()));
  history->alphas_ = host.alphas();
  if (alphas.empty()) return StatusOr<std::unique_ptr<DeviceAdamHistory>>(std::move(history));
  SOK_RETURN_IF_ERROR(upload->Copy(stream, from.alphas, alphas.size() * static_cast<int64_t>(sizeof(float)),
                                   history->device_alphas_.data()));
  SOK_RETURN_IF_ERROR(upload->Copy(stream, from.coefficients,
                                   alphas.size() * from.terms * static_cast<int64_t>(sizeof(double)),
                                   history->coefficients_.data()));
  return StatusOr<std::unique_ptr<DeviceAdamHistory>>(std::move(history));
}

void DeviceAdamHistory::set_stream(cudaStream_t stream) {
  powers_.set_stream(stream);
  increments_memory_.set_stream(stream);
  coefficients_.set_stream(stream);
  device_alphas_.set_stream(stream);
}

Status DeviceAdamHistory::ReserveStep(cudaStream_t stream) { return Reserve(stream, steps() + 1); }

Status DeviceAdamHistory::Reserve(cudaStream_t stream, int64_t steps) {
  constexpr int64_t kFirstCapacity = 128;
  if (steps > capacity_) {
    const int64_t capacity = std::max({steps, 2 * capacity_, kFirstCapacity});
    const int64_t used = std::min(view_.steps, capacity_);
    const int64_t terms = series_.terms();
    SOK_RETURN_IF_ERROR(Grow(stream, memory_, used * terms, capacity * terms, &coefficients_));
    // Before the next error: the old array is gone, and catch-ups may still come.
    view_.coefficients = coefficients_.data();
    SOK_RETURN_IF_ERROR(Grow(stream, memory_, used, capacity, &device_alphas_));
    capacity_ = capacity;
  }
  view_.coefficients = coefficients_.data();
  view_.alphas = device_alphas_.data();
  return OkStatus();
}

Status DeviceAdamHistory::Append(cudaStream_t stream, Span<const Step> steps) {
  PartLauncher<AppendPart> launcher("AppendStep", stream, AppendStep);
  for (const Step& step : steps) {
    DeviceAdamHistory* const history = step.history;
    const int64_t count = history->view_.steps + 1;
    const int64_t changed = std::min(count, history->series_.horizon()) * history->series_.terms();
    SOK_RETURN_IF_ERROR(launcher.Add({history->coefficients_.data(),
                                      history->increments_,
                                      history->device_alphas_.data(),
                                      count,
                                      history->series_.terms(),
                                      step.alpha,
                                      {}},
                                     std::max<int64_t>(changed, 1), /*lanes_log2=*/0));
  }
  SOK_RETURN_IF_ERROR(launcher.Launch());
  for (const Step& step : steps) {
    step.history->alphas_.push_back(step.alpha);
    ++step.history->view_.steps;
  }
  return OkStatus();
}

}  // namespace sok
