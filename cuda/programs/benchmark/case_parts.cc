#include "cuda/programs/benchmark/case_parts.h"

#include <algorithm>

#include "cuda/base/device_buffer.h"
#include "cuda/programs/benchmark/bandwidth.h"
#include "cuda/programs/benchmark/cases.h"

namespace sok {

int64_t KeysFor(const BenchmarkOptions& options, double bytes) {
  return std::min(options.keys, static_cast<int64_t>(static_cast<double>(options.table_bytes) / bytes));
}

BatchShape RecordOf(const BenchmarkDevice& device, int64_t dim, const std::string& optimizer) {
  BatchShape shape;
  shape.dim = dim;
  shape.slots = optimizer == "lazy_adam" || optimizer == "adam"         ? 2
                : optimizer == "adagrad" || optimizer == "rowwise_adam" ? 1
                                                                        : 0;
  shape.row_slots = optimizer == "rowwise_adam" ? 1 : 0;
  shape.record = device.record;
  shape.catches_up = optimizer == "adam";
  return shape;
}

BatchShape ShapeOf(const BenchmarkDevice& device, const LookupIds& ids, int64_t dim,
                   const std::string& optimizer, double load) {
  BatchShape shape = RecordOf(device, dim, optimizer);
  shape.ids = static_cast<double>(ids.size());
  shape.unique = ids.unique();
  shape.hotness = ids.hotness();
  shape.load = load;
  shape.cache_bytes = static_cast<double>(device.cache_bytes);
  return shape;
}

Case CaseOf(const std::string& what, const IdsDrawn& drawn, const LookupIds& ids, const BatchShape& shape) {
  Case made;
  made.what = what;
  made.ids_drawn = drawn.name();
  made.dim = shape.dim;
  made.load = shape.load;
  made.hotness = ids.pooled() ? ids.hotness() : 0;
  made.ids = shape.ids;
  made.unique = ids.unique();
  return made;
}

StatusOr<RoundsWithBounds> RoundsWithBounds::Make(BenchmarkDevice* device, const BenchmarkOptions& options) {
  RoundsWithBounds made(Rounds(device->stream, &device->memory, options.scrubbed_bytes));
  const int64_t floats = options.copied_bytes / static_cast<int64_t>(sizeof(float)) / 4 * 4;
  for (DeviceBuffer<float>* buffer : {&made.from_, &made.to_}) {
    StatusOr<DeviceBuffer<float>> memory =
        DeviceBuffer<float>::Allocate(&device->memory, device->stream, floats);
    SOK_RETURN_IF_ERROR(memory.status());
    *buffer = std::move(memory.value());
  }
  StatusOr<DeviceBuffer<int32_t>> found = DeviceBuffer<int32_t>::Allocate(&device->memory, device->stream, 1);
  SOK_RETURN_IF_ERROR(found.status());
  made.found_ = std::move(found.value());
  float* const from = made.from_.data();
  float* const to = made.to_.data();
  int32_t* const word = made.found_.data();
  const cudaStream_t stream = device->stream;
  const auto bytes = static_cast<size_t>(floats) * sizeof(float);
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(from, 0, bytes, stream), "cannot clear memory");
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(word, 0, sizeof(int32_t), stream), "cannot clear memory");

  Case copy;
  copy.what = kCopy;
  copy.bytes = 2 * static_cast<double>(bytes);
  copy.run = [=] {
    return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "cannot copy");
  };
  made.Add(std::move(copy));
  Case read;
  read.what = kRead;
  read.bytes = static_cast<double>(bytes);
  read.run = [=] { return ReadAll(stream, from, floats, word); };
  made.Add(std::move(read));
  return StatusOr<RoundsWithBounds>(std::move(made));
}

Status RoundsWithBounds::Run(int rounds, std::vector<Case>* cases) {
  SOK_RETURN_IF_ERROR(rounds_.Run(rounds));
  for (Case& measured : rounds_.cases()) {
    measured.prepare = nullptr;
    measured.run = nullptr;
    cases->push_back(std::move(measured));
  }
  return OkStatus();
}

std::vector<IdsDrawn> Distributions(const BenchmarkOptions& options) { return {{0}, {options.zipf}}; }

}  // namespace sok
