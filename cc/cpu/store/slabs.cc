#include "cc/cpu/store/slabs.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace sok {

Slabs::Slabs(int64_t record_bytes, int slab_bits)
    : record_bytes_(record_bytes), slab_bits_(slab_bits), mask_((int64_t{1} << slab_bits) - 1) {}

int Slabs::BitsFor(int64_t record_bytes, int64_t slab_bytes) {
  int bits = 0;
  while ((record_bytes << (bits + 1)) <= slab_bytes) ++bits;
  return bits;
}

Status Slabs::Reserve(int64_t n) {
  if (n <= size_) return OkStatus();
  if (n > std::numeric_limits<int64_t>::max() / record_bytes_) {
    return ResourceExhausted("cannot make room for ", n, " rows of ", record_bytes_, " bytes");
  }
  const int64_t before = static_cast<int64_t>(slabs_.size());
  const int64_t wanted = ((n - 1) >> slab_bits_) + 1;
  // One request for the whole size fails at once if it is impossible, before many slabs are allocated.
  Status status;
  if (wanted - before > 1) status = PageBuffer::ReserveAddresses((n - size_) * record_bytes_).status();
  for (int64_t slab = before; status.ok() && slab < wanted; ++slab) {
    StatusOr<PageBuffer> buffer = PageBuffer::ReserveAddresses(record_bytes_ << slab_bits_);
    status = buffer.status();
    if (buffer.ok()) slabs_.push_back(std::move(buffer.value()));
  }
  if (!status.ok()) {
    slabs_.resize(before);
    return ResourceExhausted(n, " rows of ", record_bytes_, " bytes: ", status.message());
  }
  // A table smaller than a huge page stays on small pages, which take less memory than one huge page.
  if (n * record_bytes_ >= PageBuffer::kHugePageBytes) {
    for (int64_t slab = size_ >> slab_bits_; slab < wanted; ++slab) {
      const int64_t used = std::min(n - (slab << slab_bits_), mask_ + 1);
      slabs_[slab].AdviseHugePages(used * record_bytes_);
    }
  }
  size_ = n;
  return OkStatus();
}

Status Slabs::ReserveWith(int64_t n, PlaceBytes place) {
  SOK_RETURN_IF_ERROR(Reserve(n));
  const int64_t slab_bytes = record_bytes_ << slab_bits_;
  for (int64_t begin = 0; begin < bytes(); begin += slab_bytes) {
    SOK_RETURN_IF_ERROR(place(begin, at(begin / record_bytes_), std::min(slab_bytes, bytes() - begin)));
  }
  return OkStatus();
}

}  // namespace sok
