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
// A growing index moves at least this many buckets at a time, and this many for each new key: 29 keys at a
// load of 0.9, with 1.4 KB of memory traffic, about as much as the step itself has for a new row.
constexpr int64_t kMovedAtOnce = 64;
constexpr int64_t kMovedForAKey = 2;

}  // namespace

KeyIndex::KeyIndex(DeviceAllocator* allocator, double max_load)
    : allocator_(allocator), max_load_(max_load) {}

int64_t KeyIndex::BucketsFor(int64_t keys) const {
  return std::max<int64_t>(1,
                           static_cast<int64_t>(std::ceil(static_cast<double>(keys) / max_load_ / kPlaces)));
}

// Tombstones make searches longer, like occupied places. They may take up half of the places that keys leave
// free.
bool KeyIndex::IsClean(int64_t keys) const {
  return erased_ == 0 ||
         static_cast<double>(keys + erased_) <= (1 + max_load_) / 2 * static_cast<double>(places());
}

Status KeyIndex::Reserve(cudaStream_t stream, int64_t keys) {
  SOK_RETURN_IF_ERROR(Move(stream, std::max(kMovedAtOnce, kMovedForAKey * inserted_)));
  if (static_cast<double>(keys) > max_load_ * static_cast<double>(places())) {
    SOK_RETURN_IF_ERROR(Move(stream, view_.old.buckets));
    const int64_t wanted = BucketsFor(keys);
    const int64_t by_half = std::min(kMaxBuckets, view_.buckets + static_cast<int64_t>(view_.buckets) / 2);
    if (by_half <= wanted || !BeginGrowth(stream, by_half).ok()) {
      SOK_RETURN_IF_ERROR(BeginGrowth(stream, wanted));
    }
  } else if (!grows()) {
    if (!IsClean(keys)) TakeCount();
    // If there is no memory for this, searches stay slow.
    if (!IsClean(keys)) (void)BeginGrowth(stream, view_.buckets).ok();
  }
  if (keys - size_ <= old_room_) return OkStatus();
  return Move(stream, view_.old.buckets);
}

Status KeyIndex::BeginGrowth(cudaStream_t stream, int64_t buckets) {
  if (buckets > kMaxBuckets) return ResourceExhausted("an index on the device with ", buckets, " buckets");
  SOK_ASSIGN_OR_RETURN(auto memory, DeviceBuffer<char>::Allocate(allocator_, stream, buckets * kBucketBytes));
  KeyBuckets next;
  next.slots = reinterpret_cast<longlong2*>(memory.data());
  next.digests = reinterpret_cast<uint4*>(memory.data() + buckets * kPlaces * sizeof(longlong2));
  next.buckets = static_cast<uint32_t>(buckets);
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(next.digests, 0, buckets * sizeof(uint4), stream),
                           "cannot clear an index");
  // With half of the free places taken, searches in the old buckets are still short.
  old_room_ = (places() - size_) / 2;
  old_memory_ = std::exchange(memory_, std::move(memory));
  view_.old = view_;
  view_.moved = 0;
  static_cast<KeyBuckets&>(view_) = next;
  erased_ = 0;
  is_counted_ = false;
  if (size_ == 0) EndGrowth(stream);
  return OkStatus();
}

Status KeyIndex::Move(cudaStream_t stream, int64_t buckets) {
  inserted_ = 0;
  if (!grows()) return OkStatus();
  const auto end = static_cast<uint32_t>(std::min<int64_t>(view_.old.buckets, view_.moved + buckets));
  SOK_RETURN_IF_ERROR(MoveKeys(stream, view_.old, view_.moved, end, view_));
  view_.moved = end;
  if (end == view_.old.buckets) EndGrowth(stream);
  return OkStatus();
}

void KeyIndex::EndGrowth(cudaStream_t stream) {
  old_memory_.set_stream(stream);
  old_memory_ = DeviceBuffer<char>();
  view_.old = KeyBuckets();
  view_.moved = KeyIndexView().moved;
}

void KeyIndex::CountErased(cudaStream_t stream, int64_t n) {
  if (n == 0) return;
  size_ -= n;
  erased_ += n;
  erased_since_count_ += n;
  // A count reads a byte of each place. It pays if as many keys as were erased, and as many again, would need
  // a clean index. Most erased keys leave a free place: without a count, all are taken for tombstones.
  if (grows() || IsClean(size_ + 2 * n)) return;
  is_counted_ = EnqueueCount(stream).ok();
  if (is_counted_) erased_since_count_ = 0;
}

Status KeyIndex::EnqueueCount(cudaStream_t stream) {
  if (count_ == nullptr) {
    auto count = std::make_unique<TombstoneCount>();
    SOK_ASSIGN_OR_RETURN(count->on_host, PinnedBuffer<uint32_t>::Allocate(1));
    SOK_ASSIGN_OR_RETURN(count->on_device, DeviceBuffer<uint32_t>::Allocate(allocator_, stream, 1));
    count_ = std::move(count);
  }
  uint32_t* const sum = count_->on_device.data();
  count_->on_device.set_stream(stream);
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(sum, 0, sizeof(uint32_t), stream), "cannot clear a count");
  SOK_RETURN_IF_ERROR(CountTombstones(stream, view_, sum));
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(count_->on_host.data(), sum, sizeof(uint32_t), cudaMemcpyDeviceToHost, stream),
      "cannot copy a count from the device");
  return count_->copied.Record(stream);
}

// It has usually arrived, as callers wait for the device between two calls.
void KeyIndex::TakeCount() {
  if (!is_counted_ || !count_->copied.IsDone()) return;
  erased_ = std::min(erased_, static_cast<int64_t>(*count_->on_host.data()) + erased_since_count_);
}

}  // namespace sok
