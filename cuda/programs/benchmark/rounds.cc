#include "cuda/programs/benchmark/rounds.h"

#include <utility>

#include "cuda/base/device_buffer.h"

namespace sok {
namespace {

constexpr int kWarmUps = 2;

// A CUDA event that records a time.
class Moment {
 public:
  Moment() = default;
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;
  ~Moment() {
    if (event_ != nullptr && cudaEventDestroy(event_) != cudaSuccess) cudaGetLastError();
  }

  Status Record(cudaStream_t stream) {
    SOK_RETURN_IF_CUDA_ERROR(cudaEventCreate(&event_), "cannot make an event");
    return CudaStatus(cudaEventRecord(event_, stream), "cannot record an event");
  }
  cudaEvent_t event() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

StatusOr<double> Rounds::Measure(const Case& measured) {
  if (measured.prepare) SOK_RETURN_IF_ERROR(measured.prepare());
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemsetAsync(scrubbed_.data(), 0, static_cast<size_t>(scrubbed_.bytes()), stream_),
      "cannot empty the cache");
  Moment begin, end;
  SOK_RETURN_IF_ERROR(begin.Record(stream_));
  SOK_RETURN_IF_ERROR(measured.run());
  SOK_RETURN_IF_ERROR(end.Record(stream_));
  SOK_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end.event()), "cannot wait for ", measured.what);
  float ms = 0;
  SOK_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&ms, begin.event(), end.event()), "cannot read a time");
  return static_cast<double>(ms);
}

Status Rounds::Run(int rounds) {
  SOK_ASSIGN_OR_RETURN(scrubbed_, DeviceBuffer<char>::Allocate(memory_, stream_, scrubbed_bytes_));
  std::vector<std::vector<double>> ms(cases_.size());
  for (int round = -kWarmUps; round < rounds; ++round) {
    for (size_t i = 0; i < cases_.size(); ++i) {
      SOK_ASSIGN_OR_RETURN(const double took, Measure(cases_[i]));
      if (round >= 0) ms[i].push_back(took);
    }
  }
  for (size_t i = 0; i < cases_.size(); ++i) cases_[i].ms = QuartilesOf(ms[i]);
  scrubbed_.Free();
  return OkStatus();
}

}  // namespace sok
