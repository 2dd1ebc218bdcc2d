#include <algorithm>

#include "cuda/on_host/engine/runtime.h"

namespace sok::on_host {

MemoryPool& MemoryPool::Get() {
  static auto& pool = *new MemoryPool();
  return pool;
}

void MemoryPool::CountAllocated(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  used_ += bytes;
  reserved_ = std::max(reserved_, used_);
}

void MemoryPool::CountFreed(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  used_ -= bytes;
}

void MemoryPool::TrimTo(uint64_t bytes_to_keep) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reserved_ = std::max(used_, std::min(reserved_, bytes_to_keep));
}

void MemoryPool::TrimToThreshold() { TrimTo(threshold()); }

uint64_t MemoryPool::reserved() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return reserved_;
}

uint64_t MemoryPool::used() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return used_;
}

uint64_t MemoryPool::threshold() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return threshold_;
}

void MemoryPool::set_threshold(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  threshold_ = bytes;
}

namespace {

cudaMemPool_t Handle() { return reinterpret_cast<cudaMemPool_t>(&MemoryPool::Get()); }

}  // namespace
}  // namespace sok::on_host

using namespace sok::on_host;  // NOLINT: the functions below are CUDA's, in the global namespace

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  if (pool == nullptr) return Result(cudaErrorInvalidValue);
  if (device != 0) return Result(cudaErrorInvalidDevice);
  *pool = Handle();
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (pool != Handle() || value == nullptr || attribute != cudaMemPoolAttrReleaseThreshold) {
    return Result(cudaErrorInvalidValue);
  }
  MemoryPool::Get().set_threshold(*static_cast<const uint64_t*>(value));
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (pool != Handle() || value == nullptr) return Result(cudaErrorInvalidValue);
  auto* const number = static_cast<uint64_t*>(value);
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      *number = MemoryPool::Get().threshold();
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemCurrent:
      *number = MemoryPool::Get().reserved();
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemCurrent:
      *number = MemoryPool::Get().used();
      return cudaSuccess;
  }
  return Result(cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep) {
  if (pool != Handle()) return Result(cudaErrorInvalidValue);
  MemoryPool::Get().TrimTo(bytes_to_keep);
  return cudaSuccess;
}
