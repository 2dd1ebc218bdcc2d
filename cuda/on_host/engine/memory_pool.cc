#include <algorithm>

#include "cuda/on_host/engine/runtime.h"

namespace sok::on_host {

MemoryPool& MemoryPool::Get() {
  static auto& pool = *new MemoryPool();
  return pool;
}

void MemoryPool::CountAllocated(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_.used += bytes;
  bytes_.reserved = std::max(bytes_.reserved, bytes_.used);
}

void MemoryPool::CountFreed(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_.used -= bytes;
}

void MemoryPool::TrimTo(uint64_t bytes_to_keep) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_.reserved = std::max(bytes_.used, std::min(bytes_.reserved, bytes_to_keep));
}

void MemoryPool::TrimToThreshold() { TrimTo(bytes().threshold); }

MemoryPool::Bytes MemoryPool::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

void MemoryPool::set_threshold(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_.threshold = bytes;
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
  const MemoryPool::Bytes bytes = MemoryPool::Get().bytes();
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      *number = bytes.threshold;
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemCurrent:
      *number = bytes.reserved;
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemCurrent:
      *number = bytes.used;
      return cudaSuccess;
  }
  return Result(cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep) {
  if (pool != Handle()) return Result(cudaErrorInvalidValue);
  MemoryPool::Get().TrimTo(bytes_to_keep);
  return cudaSuccess;
}
