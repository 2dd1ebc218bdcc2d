#include "cuda/index/key_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cuda/base/device_buffer.h"

namespace sok {
namespace {

constexpr int64_t kPlaces = KeyIndexView::kPlaces;
constexpr int64_t kBucketBytes = kPlaces * static_cast<int64_t>(sizeof(longlong2)) + sizeof(uint4);
constexpr int64_t kMaxBuckets = std::numeric_limits<uint32_t>::max();

}  // namespace

KeyIndex::KeyIndex(DeviceAllocator* allocator, double max_load)
    : allocator_(allocator), max_load_(max_load) {}

int64_t KeyIndex::BucketsFor(int64_t keys) const {
  return std::max<int64_t>(1,
                           static_cast<int64_t>(std::ceil(static_cast<double>(keys) / max_load_ / kPlaces)));
}

Status KeyIndex::Reserve(cudaStream_t stream, int64_t keys) {
  const auto room = static_cast<double>(places());
  const bool has_room = static_cast<double>(keys) <= max_load_ * room;
  // Places of erased keys make searches longer, like occupied ones. They may take up half of the places that
  // keys leave free.
  const bool is_clean = erased_ == 0 || static_cast<double>(keys + erased_) <= (1 + max_load_) / 2 * room;
  if (has_room) {
    // If there is no memory for this, searches stay slow.
    if (!is_clean) (void)Rehash(stream, view_.buckets).ok();
    return OkStatus();
  }
  const int64_t wanted = BucketsFor(keys);
  const int64_t by_half = std::min(kMaxBuckets, view_.buckets + static_cast<int64_t>(view_.buckets) / 2);
  if (by_half > wanted && Rehash(stream, by_half).ok()) return OkStatus();
  return Rehash(stream, wanted);
}

Status KeyIndex::Rehash(cudaStream_t stream, int64_t buckets) {
  if (buckets > kMaxBuckets) return ResourceExhausted("an index on the device with ", buckets, " buckets");
  StatusOr<DeviceBuffer<char>> memory =
      DeviceBuffer<char>::Allocate(allocator_, stream, buckets * kBucketBytes);
  if (!memory.ok()) return memory.status();
  KeyIndexView next;
  next.slots = reinterpret_cast<longlong2*>(memory.value().data());
  next.digests = reinterpret_cast<uint4*>(memory.value().data() + buckets * kPlaces * sizeof(longlong2));
  next.buckets = static_cast<uint32_t>(buckets);
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(next.digests, 0, buckets * sizeof(uint4), stream),
                           "cannot clear an index");
  if (size_ > 0) SOK_RETURN_IF_ERROR(CopyKeys(stream, view_, next));
  memory_.set_stream(stream);
  memory_ = std::move(memory.value());
  view_ = next;
  erased_ = 0;
  return OkStatus();
}

void KeyIndex::CountErased(int64_t n) {
  size_ -= n;
  erased_ += n;
}

}  // namespace sok
