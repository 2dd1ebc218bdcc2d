#include <algorithm>
#include <limits>
#include <utility>

#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/store/device_slabs.h"

namespace sok {
namespace {

// Addresses passed to the device as kernel arguments, so that no host memory has to be kept for them.
struct AddressPiece {
  static constexpr int kSize = 128;
  char* addresses[kSize];
};

__global__ void __launch_bounds__(AddressPiece::kSize)
    WriteAddressesKernel(const __grid_constant__ AddressPiece piece, int n, char** to) {
  AwaitPreviousKernels();
  const int i = static_cast<int>(threadIdx.x);
  if (i < n) to[i] = piece.addresses[i];
}

// to[i] = the address of slabs[i].
Status WriteAddresses(cudaStream_t stream, const std::vector<DeviceBuffer<char>>& slabs, char** to) {
  const auto n = static_cast<int64_t>(slabs.size());
  for (int64_t begin = 0; begin < n; begin += AddressPiece::kSize) {
    const int count = static_cast<int>(std::min<int64_t>(AddressPiece::kSize, n - begin));
    AddressPiece piece = {};
    for (int i = 0; i < count; ++i) piece.addresses[i] = slabs[begin + i].data();
    SOK_RETURN_IF_ERROR(Launch("WriteAddresses", stream, {1, AddressPiece::kSize, 0}, WriteAddressesKernel,
                               piece, count, to + begin));
  }
  return OkStatus();
}

int BitsFor(int64_t record_bytes, int64_t slab_bytes) {
  int bits = 0;
  while (record_bytes <= slab_bytes >> (bits + 1)) ++bits;
  return bits;
}

}  // namespace

DeviceSlabs::DeviceSlabs(int64_t record_bytes, Fresh fresh, DeviceAllocator* slabs,
                         DeviceAllocator* addresses, int64_t slab_bytes)
    : record_bytes_(record_bytes),
      fresh_(fresh),
      bits_(BitsFor(record_bytes, slab_bytes)),
      slab_allocator_(slabs),
      address_allocator_(addresses) {}

void DeviceSlabs::set_stream(cudaStream_t stream) {
  for (DeviceBuffer<char>& slab : slabs_) slab.set_stream(stream);
  addresses_.set_stream(stream);
}

int64_t DeviceSlabs::bytes() const {
  int64_t bytes = addresses_.bytes();
  for (const DeviceBuffer<char>& slab : slabs_) bytes += slab.bytes();
  return bytes;
}

int64_t DeviceSlabs::capacity() const {
  if (slabs_.size() == 1) return slabs_[0].size() / record_bytes_;
  return static_cast<int64_t>(slabs_.size()) << bits_;
}

StatusOr<std::vector<DeviceBuffer<char>>> DeviceSlabs::AllocateSlabs(cudaStream_t stream, int64_t first,
                                                                     int64_t end, int64_t first_records) {
  std::vector<DeviceBuffer<char>> slabs;
  for (int64_t slab = first; slab < end; ++slab) {
    const int64_t bytes = (slab == 0 ? first_records : records_per_slab()) * record_bytes_;
    SOK_ASSIGN_OR_RETURN(auto memory, DeviceBuffer<char>::Allocate(slab_allocator_, stream, bytes));
    slabs.push_back(std::move(memory));
    if (fresh_ == Fresh::kZeroBytes) {
      SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(slabs.back().data(), 0, static_cast<size_t>(bytes), stream),
                               "cannot clear ", bytes, " bytes");
    }
  }
  return StatusOr<std::vector<DeviceBuffer<char>>>(std::move(slabs));
}

Status DeviceSlabs::Reserve(cudaStream_t stream, int64_t n) {
  if (n <= size_) return OkStatus();
  if (n <= capacity()) {
    size_ = n;
    return OkStatus();
  }
  if (n > std::numeric_limits<int64_t>::max() / record_bytes_ - records_per_slab()) {
    return ResourceExhausted("cannot make room for ", n, " records of ", record_bytes_, " bytes");
  }
  const int64_t wanted = ((n - 1) >> bits_) + 1;
  const bool replaces_first = slabs_.size() == 1 && capacity() < records_per_slab();
  const int64_t kept = replaces_first ? 0 : static_cast<int64_t>(slabs_.size());
  const int64_t first_records =
      wanted > 1 ? records_per_slab() : std::min(records_per_slab(), std::max(n, 2 * capacity()));
  SOK_ASSIGN_OR_RETURN(std::vector<DeviceBuffer<char>> added,
                       AllocateSlabs(stream, kept, wanted, first_records));

  DeviceBuffer<char*> addresses;
  const bool moves_addresses = addresses_.size() < wanted;
  if (moves_addresses) {
    SOK_ASSIGN_OR_RETURN(addresses, DeviceBuffer<char*>::Allocate(address_allocator_, stream,
                                                                  std::max<int64_t>(16, 2 * wanted)));
    if (kept > 0) {
      SOK_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(addresses.data(), addresses_.data(), kept * sizeof(char*),
                                               cudaMemcpyDeviceToDevice, stream),
                               "cannot copy addresses of slabs");
    }
  }
  if (replaces_first && size_ > 0) {
    SOK_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(added[0].data(), slabs_[0].data(), static_cast<size_t>(size_ * record_bytes_),
                        cudaMemcpyDefault, stream),
        "cannot copy ", size_, " records");
  }
  SOK_RETURN_IF_ERROR(
      WriteAddresses(stream, added, (moves_addresses ? addresses : addresses_).data() + kept));

  set_stream(stream);
  if (moves_addresses) addresses_ = std::move(addresses);
  slabs_.resize(kept);
  for (DeviceBuffer<char>& slab : added) slabs_.push_back(std::move(slab));
  size_ = n;
  return OkStatus();
}

}  // namespace sok
