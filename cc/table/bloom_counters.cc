#include "cc/table/bloom_counters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "cc/table/bloom_places.h"

namespace sok {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr double kMinProbability = 1e-15;

// The distinct counters of an id: in which blocks they are, and at which byte of them.
struct Places {
  int64_t blocks[kMaxBloomHashes];
  int64_t offsets[kMaxBloomHashes];
  int count;

  explicit Places(const BloomCounters& counters, int64_t id) {
    int64_t at[kMaxBloomHashes];
    count = BloomPlaces(id, counters.hashes(), counters.counters(), at);
    const int64_t per_block = BloomCounters::CountersPerBlock(counters.counter_bits());
    for (int i = 0; i < count; ++i) {
      blocks[i] = at[i] / per_block;
      offsets[i] = at[i] % per_block * (kBloomBlockBytes / per_block);
    }
  }
};

// Calls visit with a zero of the type of counters of `bits` bits.
template <typename Visit>
auto WithType(int bits, const Visit& visit) {
  switch (bits) {
    case 8:
      return visit(uint8_t{0});
    case 16:
      return visit(uint16_t{0});
    case 32:
      return visit(uint32_t{0});
    default:
      return visit(uint64_t{0});
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
  if (IsInBlocks(shape, counter_bits)) return CreateInBlocks(max_elements, p, counter_bits);
  BloomCounters made(shape, counter_bits, /*in_blocks=*/false);
  StatusOr<PageBuffer> memory = PageBuffer::Allocate(made.blocks() * kBloomBlockBytes);
  if (!memory.ok())
    return ResourceExhausted("a filter of ", shape.counters, " counters: ", memory.status().message());
  made.array_ = std::move(memory.value());
  return made;
}

BloomCounters BloomCounters::CreateInBlocks(int64_t max_elements, double p, int counter_bits) {
  return BloomCounters(ShapeOf(max_elements, p), counter_bits, /*in_blocks=*/true);
}

void BloomCounters::FindBlocks(Span<const int64_t> blocks, Span<char*> addresses) const {
  if (in_blocks_) return sparse_.Find(blocks, addresses);
  for (int64_t i = 0; i < blocks.size(); ++i) {
    addresses[i] = static_cast<char*>(array_.data()) + blocks[i] * kBloomBlockBytes;
  }
}

int64_t BloomCounters::Count(int64_t id) const {
  const Places places(*this, id);
  char* addresses[kMaxBloomHashes];
  FindBlocks({places.blocks, places.count}, {addresses, places.count});
  return WithType(counter_bits_, [&](auto zero) {
    uint64_t least = static_cast<uint64_t>(max_count());
    for (int i = 0; i < places.count; ++i) {
      auto counter = zero;
      if (addresses[i] != nullptr) std::memcpy(&counter, addresses[i] + places.offsets[i], sizeof(counter));
      least = std::min<uint64_t>(least, counter);
    }
    return static_cast<int64_t>(least);
  });
}

Status BloomCounters::Reserve(Span<const int64_t> ids) {
  if (!in_blocks_) return OkStatus();
  constexpr int64_t kIdsAtOnce = 1024;
  std::vector<int64_t> blocks;
  for (int64_t first = 0; first < ids.size(); first += kIdsAtOnce) {
    blocks.clear();
    for (const int64_t id : ids.subspan(first, std::min(kIdsAtOnce, ids.size() - first))) {
      const Places places(*this, id);
      blocks.insert(blocks.end(), places.blocks, places.blocks + places.count);
    }
    const Status status = sparse_.Reserve(blocks);
    if (!status.ok()) return ResourceExhausted("a filter of ", counters_, " counters: ", status.message());
  }
  return OkStatus();
}

void BloomCounters::Add(int64_t id, int64_t count) {
  const Places places(*this, id);
  char* addresses[kMaxBloomHashes];
  FindBlocks({places.blocks, places.count}, {addresses, places.count});
  const uint64_t limit = static_cast<uint64_t>(max_count());
  WithType(counter_bits_, [&](auto counter) {
    for (int i = 0; i < places.count; ++i) {
      char* const address = addresses[i] + places.offsets[i];
      std::memcpy(&counter, address, sizeof(counter));
      const uint64_t room = limit - std::min<uint64_t>(counter, limit);
      counter += static_cast<decltype(counter)>(std::min(room, static_cast<uint64_t>(count)));
      std::memcpy(address, &counter, sizeof(counter));
    }
  });
}

Status BloomCounters::ForEachNonZeroBlock(VisitBlocks visit) const {
  if (in_blocks_) return sparse_.ForEachNonZero(visit);
  return VisitNonZeroBlocks(0, {static_cast<const char*>(array_.data()), array_.size()}, visit);
}

Status BloomCounters::MergeMax(Span<const int64_t> blocks, Span<const char> bytes) {
  SOK_RETURN_IF_ERROR(CheckBloomBlocks(blocks, bytes.size(), counters_, counter_bits_));
  if (in_blocks_) SOK_RETURN_IF_ERROR(sparse_.Reserve(blocks));
  std::vector<char*> addresses(static_cast<size_t>(blocks.size()));
  FindBlocks(blocks, Span<char*>(addresses));
  const int64_t per_block = CountersPerBlock(counter_bits_);
  WithType(counter_bits_, [&](auto zero) {
    for (int64_t i = 0; i < blocks.size(); ++i) {
      const int64_t n = std::min(per_block, counters_ - blocks[i] * per_block);
      for (int64_t k = 0; k < n; ++k) {
        auto own = zero;
        auto other = zero;
        char* const address = addresses[static_cast<size_t>(i)] + k * static_cast<int64_t>(sizeof(own));
        std::memcpy(&own, address, sizeof(own));
        std::memcpy(&other, bytes.data() + (i * per_block + k) * static_cast<int64_t>(sizeof(own)),
                    sizeof(other));
        if (other > own) std::memcpy(address, &other, sizeof(other));
      }
    }
  });
  return OkStatus();
}

Status CheckBloomBlocks(Span<const int64_t> blocks, int64_t bytes, int64_t counters, int counter_bits) {
  if (bytes != blocks.size() * kBloomBlockBytes) {
    return InvalidArgument(bytes, " bytes are not ", blocks.size(), " blocks of counters");
  }
  const int64_t limit = BloomCounters::BlocksOf(counters, counter_bits);
  for (const int64_t block : blocks) {
    if (block < 0 || block >= limit) {
      return InvalidArgument("block ", block, " is not in a filter of ", counters, " counters of ",
                             counter_bits, " bits, which has ", limit, " blocks");
    }
  }
  return OkStatus();
}

}  // namespace sok
