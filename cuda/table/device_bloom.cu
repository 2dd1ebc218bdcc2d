#include <utility>

#include "cc/table/bloom_filter.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/table/bloom_kernels.h"
#include "cuda/table/device_bloom.h"

namespace sok {
namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    AddKernel(BloomView bloom, const int64_t* keys, const int32_t* counts, const int32_t* which, int64_t n) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    AddToBloom(bloom, keys[which[i]], counts[which[i]]);
  }
}

// One thread, because the amount by which an id's counters are raised depends on the ids before it.
__global__ void RaiseKernel(BloomView bloom, const int64_t* keys, const int64_t* counts, int64_t n) {
  AwaitPreviousKernels();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t lacks = counts[i] - BloomCount(bloom, keys[i]);
    if (lacks > 0) AddToBloom(bloom, keys[i], lacks);
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    MergeKernel(BloomView bloom, const int64_t* blocks, int64_t per_block, BloomView other) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < other.count; i += ThreadsOfGrid()) {
    const uint64_t counter = BloomCounter(other, i);
    const int64_t at = blocks[i / per_block] * per_block + i % per_block;
    if (at >= bloom.count) continue;
    ChangeBloomCounter(bloom, at, [&](uint64_t own) { return own < counter ? counter : own; });
  }
}

}  // namespace

Status DeviceBloom::Init(cudaStream_t stream, const Admission& admission) {
  const BloomShape shape = BloomShape::Of(admission.max_element_size, admission.false_positive_probability);
  // Whole blocks, as in checkpoints.
  const int64_t words = BloomShape::BlocksOf(shape.counters, admission.counter_bits) * (kBloomBlockBytes / 8);
  StatusOr<DeviceBuffer<uint64_t>> memory = DeviceBuffer<uint64_t>::Allocate(allocator_, stream, words);
  if (!memory.ok()) {
    return ResourceExhausted("a filter of ", shape.counters, " counters: ", memory.status().message());
  }
  memory_ = std::move(memory.value());
  view_.counters = memory_.data();
  view_.count = shape.counters;
  view_.hashes = shape.hashes;
  view_.bits = admission.counter_bits;
  view_.max_count = static_cast<uint64_t>(BloomShape::MaxCount(admission.counter_bits));
  return CudaStatus(cudaMemsetAsync(memory_.data(), 0, static_cast<size_t>(memory_.bytes()), stream),
                    "cannot clear ", memory_.bytes(), " bytes on the device");
}

Status DeviceBloom::Add(cudaStream_t stream, const int64_t* keys, const int32_t* counts, const int32_t* which,
                        int64_t n) {
  return Launch("AddToBloom", stream, ShapeFor(n), AddKernel, view_, keys, counts, which, n);
}

Status DeviceBloom::RaiseTo(cudaStream_t stream, const int64_t* keys, const int64_t* counts, int64_t n) {
  return Launch("RaiseBloom", stream, {n > 0 ? 1 : 0, 1, 0}, RaiseKernel, view_, keys, counts, n);
}

Status DeviceBloom::MergeMax(cudaStream_t stream, DeviceAllocator* scratch, Span<const int64_t> blocks,
                             Span<const char> bytes) {
  SOK_RETURN_IF_ERROR(CheckBloomBlocks(blocks, bytes.size(), view_.count, view_.bits));
  if (blocks.empty()) return OkStatus();
  SOK_ASSIGN_OR_RETURN(auto numbers, DeviceBuffer<int64_t>::Allocate(scratch, stream, blocks.size()));
  StatusOr<DeviceBuffer<char>> copy = DeviceBuffer<char>::Allocate(scratch, stream, bytes.size());
  SOK_RETURN_IF_ERROR(copy.status());
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(numbers.data(), blocks.data(), static_cast<size_t>(numbers.bytes()),
                      cudaMemcpyHostToDevice, stream),
      "cannot copy ", numbers.bytes(), " bytes to the device");
  SOK_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(copy.value().data(), bytes.data(),
                                           static_cast<size_t>(bytes.size()), cudaMemcpyHostToDevice, stream),
                           "cannot copy ", bytes.size(), " bytes to the device");
  const int64_t per_block = BloomShape::CountersPerBlock(view_.bits);
  BloomView other = view_;
  other.counters = copy.value().data();
  other.count = blocks.size() * per_block;
  SOK_RETURN_IF_ERROR(Launch("MergeBloom", stream, ShapeFor(other.count), MergeKernel, view_, numbers.data(),
                             per_block, other));
  // Wait, because the caller may free the host's bytes.
  return CudaStatus(cudaStreamSynchronize(stream), "cannot wait for the device");
}

}  // namespace sok
