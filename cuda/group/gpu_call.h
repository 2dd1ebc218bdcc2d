// The stream and memory of a call into the engine.
#ifndef SOK_CUDA_GROUP_GPU_CALL_H_
#define SOK_CUDA_GROUP_GPU_CALL_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/object_pool.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cc/engine/engine_table.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"
#include "cuda/table/device_table.h"

namespace sok {

// The memory of an EngineContext, or the engine's own if it has none.
//
// Of an EngineContext's, it takes one block for all that a call needs: as many bytes as the last such call
// needed. What does not fit is allocated by itself. The engine's own programs have each array by itself, so
// that tests see where each ends.
class CallMemory final : public DeviceAllocator {
 public:
  // `block_bytes`: of the last call; negative if there was no memory for a block, which is then not asked for
  // again. Null: there is no block, and the object is thread-safe.
  CallMemory(cudaStream_t stream, StreamMemory* memory, DeviceAllocator* own,
             std::atomic<int64_t>* block_bytes)
      : stream_(stream), memory_(memory), own_(own), block_bytes_(memory == nullptr ? nullptr : block_bytes) {
    const int64_t bytes = block_bytes_ == nullptr ? 0 : block_bytes_->load();
    if (bytes <= 0) return;
    const StatusOr<void*> block = memory_->Allocate(stream_, bytes);
    if (block.ok()) {
      block_ = static_cast<char*>(block.value());
      size_ = bytes;
    } else {
      *block_bytes_ = -1;
    }
  }
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;
  ~CallMemory() override {
    if (block_ != nullptr) memory_->Free(stream_, block_);
    // Batches of some more ids fit too.
    if (block_bytes_ != nullptr && *block_bytes_ >= 0) *block_bytes_ = needed_ + needed_ / 8;
  }

  StatusOr<void*> Allocate(cudaStream_t stream, int64_t bytes) override {
    if (memory_ == nullptr) return own_->Allocate(stream, bytes);
    if (bytes == 0) return StatusOr<void*>(static_cast<void*>(nullptr));
    if (block_bytes_ != nullptr && stream == stream_) {
      const int64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
      needed_ += whole;
      if (whole <= size_ - used_) {
        used_ += whole;
        return static_cast<void*>(block_ + used_ - whole);
      }
    }
    return memory_->Allocate(stream, bytes);
  }

  void Free(cudaStream_t stream, void* memory) override {
    if (memory_ == nullptr) return own_->Free(stream, memory);
    const bool is_in_block = block_ != nullptr && block_ <= memory && memory < block_ + size_;
    if (memory != nullptr && !is_in_block) memory_->Free(stream, memory);
  }

 private:
  static constexpr int64_t kAlignment = 256;

  cudaStream_t stream_;
  StreamMemory* memory_;
  DeviceAllocator* own_;
  std::atomic<int64_t>* block_bytes_;
  char* block_ = nullptr;
  int64_t size_ = 0;    // of the block
  int64_t used_ = 0;    // of the block
  int64_t needed_ = 0;  // by the call
};

// The stream of a call, and its scratch, which is freed when the call ends.
class GpuCall {
 public:
  // `block_bytes`: see CallMemory.
  GpuCall(const EngineContext& context, DeviceAllocator* own, std::atomic<int64_t>* block_bytes = nullptr)
      : stream_(static_cast<cudaStream_t>(context.stream)),
        executor_(context.executor),
        memory_(stream_, context.memory, own, block_bytes) {}

  cudaStream_t stream() const { return stream_; }
  Executor& executor() const { return executor_; }
  DeviceAllocator* scratch() { return &memory_; }

 private:
  cudaStream_t stream_;
  Executor& executor_;
  CallMemory memory_;
};

// What calls reuse from step to step. One call at a time, except for `transfers`.
class GpuScratch final : public EngineScratch {
 public:
  using EngineScratch::EngineScratch;
  std::atomic<int64_t> block_bytes{0};  // of a call's memory
  StagedUpload upload;
  RoundTrip round_trip;
  // Numbers of ids, as LookupWords lists them.
  ReusableArray<int32_t> absent;
  ReusableArray<int32_t> admitted;
  ReusableArray<int32_t> gone;
  ReusableArray<int32_t> fresh;
  // What admission has decided, for each id.
  ReusableArray<int64_t> totals;
  ReusableArray<int64_t> places;
  ReusableArray<int32_t> outcomes;
  // The reordered plan, for each id.
  ReusableArray<int64_t> reordered_keys;
  ReusableArray<int64_t> reordered_rows;
  ReusableArray<int32_t> moved;
  // For lookups over ranks, whose states last one step: which lookups of the last step were not in order, and
  // what the asking rank's later calls need.
  std::vector<uint8_t> routed_sort;
  std::shared_ptr<ObjectPool<HostTransfers>> transfers = std::make_shared<ObjectPool<HostTransfers>>();
};

// Several tables for one call: holds their mutexes, each once, locked in order of address, so that holders of
// overlapping sets cannot deadlock; and orders the stream's work on them after that of earlier calls. The
// executor's threads read and write their disks.
class TablesAtWork {
 public:
  // The analysis cannot follow a set of mutexes whose size is known only at run time.
  TablesAtWork(cudaStream_t stream, Executor* executor,
               Span<DeviceTable* const> tables) SOK_NO_THREAD_SAFETY_ANALYSIS
      : stream_(stream),
        executor_(executor),
        tables_(tables.begin(), tables.end()) {
    std::sort(tables_.begin(), tables_.end());
    tables_.erase(std::unique(tables_.begin(), tables_.end()), tables_.end());
    for (DeviceTable* table : tables_) table->mutex().lock();
  }
  TablesAtWork(const TablesAtWork&) = delete;
  TablesAtWork& operator=(const TablesAtWork&) = delete;
  ~TablesAtWork() SOK_NO_THREAD_SAFETY_ANALYSIS {
    for (DeviceTable* table : tables_) {
      table->Leave(stream_);
      table->mutex().unlock();
    }
  }

  // Call it before any work.
  Status Enter() {
    for (DeviceTable* table : tables_) SOK_RETURN_IF_ERROR(table->Enter(stream_, executor_));
    return OkStatus();
  }

 private:
  cudaStream_t stream_;
  Executor* executor_;
  std::vector<DeviceTable*> tables_;
};

}  // namespace sok

#endif  // SOK_CUDA_GROUP_GPU_CALL_H_
