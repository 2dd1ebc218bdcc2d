#include "cc/table/bloom_counters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cc/table/bloom_places.h"

namespace sok {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr double kMinProbability = 1e-15;

// The distinct counters of an id.
struct Places {
  int64_t at[kMaxBloomHashes];
  int count;

  Places(int64_t id, int hashes, int64_t counters) : count(BloomPlaces(id, hashes, counters, at)) {}
};

// Calls visit(counters) with `data` as an array of counters of `bits` bits.
template <typename Visit>
auto WithType(int bits, const void* data, const Visit& visit) {
  void* const counters = const_cast<void*>(data);
  switch (bits) {
    case 8:
      return visit(static_cast<uint8_t*>(counters));
    case 16:
      return visit(static_cast<uint16_t*>(counters));
    case 32:
      return visit(static_cast<uint32_t*>(counters));
    default:
      return visit(static_cast<uint64_t*>(counters));
  }
}

}  // namespace

Status BloomCounters::Check(int64_t max_elements, double p, int counter_bits) {
  if (max_elements < 1 || max_elements > kMaxElements) {
    return InvalidArgument("max_element_size must be in [1, 2^40], not ", max_elements);
  }
  if (!(p >= kMinProbability && p < 1.0)) {
    return InvalidArgument("false_positive_probability must be in [1e-15, 1), not ", p);
  }
  if (counter_bits != 8 && counter_bits != 16 && counter_bits != 32 && counter_bits != 64) {
    return InvalidArgument("counters must have 8, 16, 32 or 64 bits, not ", counter_bits);
  }
  return OkStatus();
}

BloomCounters::Shape BloomCounters::ShapeOf(int64_t max_elements, double p) {
  const int hashes = std::max(1, static_cast<int>(std::ceil(std::log2(1.0 / p))));
  return {hashes,
          static_cast<int64_t>(std::ceil(hashes * static_cast<double>(max_elements) / std::log(2.0)))};
}

StatusOr<BloomCounters> BloomCounters::Create(int64_t max_elements, double p, int counter_bits) {
  SOK_RETURN_IF_ERROR(Check(max_elements, p, counter_bits));
  const Shape shape = ShapeOf(max_elements, p);
  StatusOr<PageBuffer> memory = PageBuffer::Allocate(shape.counters * (counter_bits / 8));
  if (!memory.ok())
    return ResourceExhausted("a filter of ", shape.counters, " counters: ", memory.status().message());
  return BloomCounters(shape, counter_bits, std::move(memory.value()));
}

int64_t BloomCounters::Count(int64_t id) const {
  const Places places(id, hashes_, counters_);
  return WithType(counter_bits_, memory_.data(), [&](const auto* counters) {
    uint64_t least = static_cast<uint64_t>(max_count());
    for (int i = 0; i < places.count; ++i) least = std::min<uint64_t>(least, counters[places.at[i]]);
    return static_cast<int64_t>(least);
  });
}

void BloomCounters::Add(int64_t id, int64_t count) {
  const Places places(id, hashes_, counters_);
  const uint64_t limit = static_cast<uint64_t>(max_count());
  WithType(counter_bits_, memory_.data(), [&](auto* counters) {
    for (int i = 0; i < places.count; ++i) {
      auto& counter = counters[places.at[i]];
      const uint64_t room = limit - std::min<uint64_t>(counter, limit);
      counter += static_cast<std::remove_reference_t<decltype(counter)>>(
          std::min(room, static_cast<uint64_t>(count)));
    }
  });
}

Status BloomCounters::MergeMax(int64_t first, Span<const char> bytes) {
  const int64_t width = counter_bits_ / 8;
  if (first < 0 || bytes.size() % width != 0 || bytes.size() / width > counters_ - first) {
    return InvalidArgument(bytes.size(), " bytes from counter ", first, " on do not fit a filter of ",
                           counters_, " counters of ", counter_bits_, " bits");
  }
  WithType(counter_bits_, memory_.data(), [&](auto* counters) {
    for (int64_t i = 0; i < bytes.size() / width; ++i) {
      std::remove_reference_t<decltype(*counters)> other;
      std::memcpy(&other, bytes.data() + i * width, width);
      counters[first + i] = std::max(counters[first + i], other);
    }
  });
  return OkStatus();
}

}  // namespace sok
