#include "cc/cpu/table/bloom_counters.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

namespace sok {
namespace {

constexpr int64_t kSlabBytes = int64_t{16} << 20;

}  // namespace

CounterBlocks::CounterBlocks() : records_(kBloomBlockBytes, Slabs::BitsFor(kBloomBlockBytes, kSlabBytes)) {}

Status CounterBlocks::Reserve(Span<const int64_t> blocks) {
  std::vector<int64_t> missing(blocks.begin(), blocks.end());
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  std::vector<int64_t> rows(missing.size());
  index_.Find(missing, Span<int64_t>(rows));
  size_t kept = 0;
  for (size_t i = 0; i < missing.size(); ++i) {
    if (rows[i] == IdIndex::kAbsent) missing[kept++] = missing[i];
  }
  missing.resize(kept);
  rows.resize(kept);
  if (missing.empty()) return OkStatus();
  std::iota(rows.begin(), rows.end(), used_);
  const int64_t wanted = used_ + static_cast<int64_t>(kept);
  // Whole slabs of address space: records take memory when they are written.
  const int64_t slabs = (wanted + records_.records_per_slab() - 1) / records_.records_per_slab();
  Status status = records_.Reserve(slabs * records_.records_per_slab());
  if (status.ok()) status = index_.Insert(missing, rows);
  if (!status.ok()) {
    return ResourceExhausted(wanted * kBloomBlockBytes,
                             " bytes of counters and their index: ", status.message());
  }
  used_ = wanted;
  return OkStatus();
}

void CounterBlocks::Find(Span<const int64_t> blocks, Span<char*> addresses) const {
  constexpr int64_t kAtOnce = 64;
  int64_t rows[kAtOnce];
  for (int64_t first = 0; first < blocks.size(); first += kAtOnce) {
    const int64_t n = std::min(kAtOnce, blocks.size() - first);
    index_.Find(blocks.subspan(first, n), Span<int64_t>(rows, n));
    for (int64_t i = 0; i < n; ++i) {
      addresses[first + i] = rows[i] == IdIndex::kAbsent ? nullptr : records_.at(rows[i]);
    }
  }
}

Status CounterBlocks::ForEachNonZero(VisitBlocks visit, int64_t at_a_time) const {
  BlockPieces pieces(visit);
  int64_t end = 0;  // of all numbers
  index_.ForEach([&](int64_t block, int64_t) { end = std::max(end, block + 1); });
  const int64_t parts = std::max<int64_t>(1, (used_ + at_a_time - 1) / at_a_time);
  const int64_t length = (end + parts - 1) / parts;
  std::vector<std::pair<int64_t, int64_t>> sorted;
  for (int64_t first = 0; first < end; first += length) {
    sorted.clear();
    index_.ForEach([&](int64_t block, int64_t row) {
      if (block >= first && block - first < length) sorted.emplace_back(block, row);
    });
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [block, row] : sorted) {
      if (!IsZeroBlock(records_.at(row))) SOK_RETURN_IF_ERROR(pieces.Add(block, records_.at(row)));
    }
  }
  return pieces.Flush();
}

namespace {

// The distinct counters of an id: in which blocks they are, and at which byte of them.
struct Places {
  int64_t blocks[kMaxBloomHashes];
  int64_t offsets[kMaxBloomHashes];
  int count;

  explicit Places(const BloomCounters& counters, int64_t id) {
    int64_t at[kMaxBloomHashes];
    count = BloomPlaces(id, counters.hashes(), counters.counters(), at);
    const int64_t per_block = BloomShape::CountersPerBlock(counters.counter_bits());
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

StatusOr<BloomCounters> BloomCounters::Create(int64_t max_elements, double p, int counter_bits) {
  SOK_RETURN_IF_ERROR(BloomShape::Check(max_elements, p, counter_bits));
  const BloomShape shape = BloomShape::Of(max_elements, p);
  if (BloomShape::IsInBlocks(shape, counter_bits)) return CreateInBlocks(max_elements, p, counter_bits);
  BloomCounters made(shape, counter_bits, /*in_blocks=*/false);
  StatusOr<PageBuffer> memory = PageBuffer::Allocate(made.blocks() * kBloomBlockBytes);
  if (!memory.ok())
    return ResourceExhausted("a filter of ", shape.counters, " counters: ", memory.status().message());
  made.array_ = std::move(memory.value());
  return made;
}

BloomCounters BloomCounters::CreateInBlocks(int64_t max_elements, double p, int counter_bits) {
  return BloomCounters(BloomShape::Of(max_elements, p), counter_bits, /*in_blocks=*/true);
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
  const int64_t per_block = BloomShape::CountersPerBlock(counter_bits_);
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

}  // namespace sok
