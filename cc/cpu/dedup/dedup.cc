#include "cc/cpu/dedup/dedup.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>
#include <utility>

#include "cc/base/hash.h"
#include "cc/base/status.h"

namespace sok {
namespace {

// How many ids ahead a table's slot is prefetched; a power of two.
constexpr int64_t kAhead = 32;
// Partitioning costs about two and a half times as much work per id as one table, so it pays only with this
// many threads and for batches that take longer than starting the threads.
constexpr int kMinPartitionedThreads = 3;
constexpr int64_t kMinPartitionedIds = 16 << 10;
// The table of a partition of about this many distinct ids fits into a core's L2 cache.
constexpr int64_t kPartitionIds = 8 << 10;
constexpr int kMaxPartitionBits = 8;
// A table for up to this many distinct ids is made twice as large as necessary: it still fits into the L2
// cache, and has fewer collisions, which the processor cannot predict.
constexpr int64_t kSparseIds = 4 << 10;
// Ids that one thread counts and scatters at a time.
constexpr int64_t kBlockIds = 16 << 10;
// Costs of an id, for the executor.
constexpr int64_t kScatterNs = 2;
constexpr int64_t kProbeNs = 5;
constexpr int64_t kRankNs = 1;

uint64_t HashOf(int64_t id) { return Mix64(static_cast<uint64_t>(id)); }

// Calls visit(i, hash of ids[i]) for i = 0, 1, ... until it returns false, and prefetches the slots of
// `table` for the ids that follow.
template <typename Visit>
void ForEachHash(const int64_t* ids, int64_t n, const ProbeTable& table, Visit visit) {
  uint64_t hashes[kAhead];
  for (int64_t i = 0; i < std::min(n, kAhead); ++i) {
    hashes[i] = HashOf(ids[i]);
    table.PrefetchSlot(hashes[i]);
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t hash = hashes[i % kAhead];
    if (i + kAhead < n) {
      hashes[i % kAhead] = HashOf(ids[i + kAhead]);
      table.PrefetchSlot(hashes[i % kAhead]);
    }
    if (!visit(i, hash)) return;
  }
}

Status Resize(int64_t n, std::vector<int64_t>* v) {
  try {
    v->resize(n);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("cannot allocate ", n * static_cast<int64_t>(sizeof(int64_t)),
                             " bytes for distinct ids");
  }
  return OkStatus();
}

Status GrowTo(int64_t bytes, PageBuffer* buffer) {
  if (buffer->size() >= bytes) return OkStatus();
  StatusOr<PageBuffer> larger = PageBuffer::Allocate(bytes);
  if (larger.ok()) *buffer = std::move(larger.value());
  return larger.status();
}

}  // namespace

Status Deduplicator::Run(Executor& executor, Span<const int64_t> ids, std::vector<int64_t>* unique,
                         Span<int32_t> inverse) {
  if (ids.size() > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("a lookup takes at most 2^31 - 1 ids, got ", ids.size());
  }
  const bool partitioned =
      executor.concurrency() >= kMinPartitionedThreads && ids.size() >= kMinPartitionedIds;
  return WithinMemory([&] {
    return partitioned ? RunPartitioned(executor, ids, unique, inverse) : RunWhole(ids, unique, inverse);
  });
}

Status Deduplicator::RunWhole(Span<const int64_t> ids, std::vector<int64_t>* unique, Span<int32_t> inverse) {
  const int64_t n = ids.size();
  const ObjectPool<ProbeTable>::Lease table = tables_.Take();
  int64_t room = static_cast<int64_t>(unique->size());
  room = std::max(room + room / 8, n / 4);
  if (room <= kSparseIds) room *= 2;
  SOK_RETURN_IF_ERROR(table->Start(std::min(n, room)));
  SOK_RETURN_IF_ERROR(GrowTo(n * static_cast<int64_t>(sizeof(int64_t)), &scratch_ids_));
  int64_t* const distinct = static_cast<int64_t*>(scratch_ids_.data());
  int32_t count = 0;
  Status grown;
  ForEachHash(ids.data(), n, *table, [&](int64_t i, uint64_t hash) {
    const int32_t position = table->FindOrStore(ids[i], hash, count);
    inverse[i] = position;
    distinct[count] = ids[i];
    count += position == count;
    if (count <= table->room()) return true;
    grown = table->Start(2 * table->room());
    if (!grown.ok()) return false;
    ForEachHash(distinct, count, *table, [&](int64_t u, uint64_t hash_of_u) {
      table->FindOrStore(distinct[u], hash_of_u, static_cast<int32_t>(u));
      return true;
    });
    return true;
  });
  SOK_RETURN_IF_ERROR(grown);
  SOK_RETURN_IF_ERROR(Resize(count, unique));
  std::copy_n(distinct, count, unique->data());
  return OkStatus();
}

Status Deduplicator::RunPartitioned(Executor& executor, Span<const int64_t> ids, std::vector<int64_t>* unique,
                                    Span<int32_t> inverse) {
  const int64_t n = ids.size();
  SOK_RETURN_IF_ERROR(ScatterByHash(executor, ids));
  // `inverse` holds the batch position of each id's first occurrence, then the rank of that one among the
  // first occurrences.
  SOK_RETURN_IF_ERROR(FindFirstOccurrences(executor, inverse));
  const int64_t blocks = (n + kBlockIds - 1) / kBlockIds;
  std::vector<int64_t> begin(blocks + 1, 0);
  executor.ParallelFor(blocks, kBlockIds * kRankNs, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      int64_t count = 0;
      for (int64_t i = b * kBlockIds; i < std::min(n, (b + 1) * kBlockIds); ++i) count += inverse[i] == i;
      begin[b + 1] = count;
    }
  });
  for (int64_t b = 0; b < blocks; ++b) begin[b + 1] += begin[b];
  SOK_RETURN_IF_ERROR(Resize(begin[blocks], unique));
  // First occurrences get their ranks, stored as ~rank to distinguish them from positions; then every id
  // reads the rank of its first occurrence. Whether an id is a first occurrence is hard to predict, so the
  // code does not branch on it: each id is written to the next place, which advances only if the id was new.
  // The content of the scratch memory is not needed here, so it is overwritten.
  int64_t* const distinct = static_cast<int64_t*>(scratch_ids_.data());
  executor.ParallelFor(blocks, kBlockIds * kRankNs, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      int64_t* const block_distinct = distinct + b * kBlockIds;
      int64_t count = 0;
      for (int64_t i = b * kBlockIds; i < std::min(n, (b + 1) * kBlockIds); ++i) {
        const bool is_first = inverse[i] == i;
        block_distinct[count] = ids[i];
        inverse[i] = is_first ? static_cast<int32_t>(~(begin[b] + count)) : inverse[i];
        count += is_first;
      }
      std::copy_n(block_distinct, count, unique->data() + begin[b]);
    }
  });
  int32_t* const ranks = static_cast<int32_t*>(scratch_positions_.data());
  executor.ParallelFor(n, kRankNs, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) ranks[i] = ~inverse[inverse[i] < 0 ? i : inverse[i]];
  });
  executor.ParallelFor(n, kRankNs, [&](int64_t first, int64_t last) {
    std::copy(ranks + first, ranks + last, inverse.data() + first);
  });
  return OkStatus();
}

Status Deduplicator::ScatterByHash(Executor& executor, Span<const int64_t> ids) {
  const int64_t n = ids.size();
  partition_bits_ = 4;
  while (partition_bits_ < kMaxPartitionBits && (n >> partition_bits_) > kPartitionIds) ++partition_bits_;
  const int shift = 64 - partition_bits_;
  const int64_t partitions = int64_t{1} << partition_bits_;
  SOK_RETURN_IF_ERROR(GrowTo(n * static_cast<int64_t>(sizeof(int64_t)), &scratch_ids_));
  SOK_RETURN_IF_ERROR(GrowTo(n * static_cast<int64_t>(sizeof(int32_t)), &scratch_positions_));
  int64_t* const out_ids = static_cast<int64_t*>(scratch_ids_.data());
  int32_t* const out_positions = static_cast<int32_t*>(scratch_positions_.data());

  // next[b * partitions + p]: how many ids of partition p block b has, then where its next one goes.
  const int64_t blocks = (n + kBlockIds - 1) / kBlockIds;
  std::vector<int64_t> next(blocks * partitions, 0);
  executor.ParallelFor(blocks, kBlockIds * kScatterNs, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      int64_t* const counts = &next[b * partitions];
      for (int64_t i = b * kBlockIds; i < std::min(n, (b + 1) * kBlockIds); ++i) {
        ++counts[HashOf(ids[i]) >> shift];
      }
    }
  });
  partition_begin_.assign(partitions + 1, 0);
  int64_t total = 0;
  for (int64_t p = 0; p < partitions; ++p) {
    for (int64_t b = 0; b < blocks; ++b) total += std::exchange(next[b * partitions + p], total);
    partition_begin_[p + 1] = total;
  }
  executor.ParallelFor(blocks, kBlockIds * kScatterNs, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      int64_t* const to = &next[b * partitions];
      for (int64_t i = b * kBlockIds; i < std::min(n, (b + 1) * kBlockIds); ++i) {
        const int64_t at = to[HashOf(ids[i]) >> shift]++;
        out_ids[at] = ids[i];
        out_positions[at] = static_cast<int32_t>(i);
      }
    }
  });
  return OkStatus();
}

Status Deduplicator::FindFirstOccurrences(Executor& executor, Span<int32_t> first) {
  const int64_t* const ids = static_cast<const int64_t*>(scratch_ids_.data());
  const int32_t* const positions = static_cast<const int32_t*>(scratch_positions_.data());
  const int64_t partitions = int64_t{1} << partition_bits_;
  const int64_t cost = partition_begin_[partitions] / partitions * kProbeNs;
  std::atomic<bool> failed{false};
  executor.ParallelFor(partitions, cost, [&](int64_t begin, int64_t end) {
    const ObjectPool<ProbeTable>::Lease table = tables_.Take();
    for (int64_t p = begin; p < end; ++p) {
      const int64_t part = partition_begin_[p + 1] - partition_begin_[p];
      if (!table->Start(part).ok()) {
        failed = true;
        return;
      }
      const int64_t* const part_ids = ids + partition_begin_[p];
      const int32_t* const part_positions = positions + partition_begin_[p];
      ForEachHash(part_ids, part, *table, [&](int64_t i, uint64_t hash) {
        first[part_positions[i]] = table->FindOrStore(part_ids[i], hash, part_positions[i]);
        return true;
      });
    }
  });
  if (failed) return ResourceExhausted("cannot allocate the working memory of ", first.size(), " ids");
  return OkStatus();
}

void BuildSegments(Span<const int32_t> inverse, int64_t num_unique, Segments* segments) {
  const int64_t n = inverse.size();
  std::vector<int64_t>& offsets = segments->offsets;
  offsets.assign(num_unique + 1, 0);
  segments->positions.resize(n);
  for (const int32_t u : inverse) ++offsets[u];
  // Each entry first holds its segment's end, and decreases to its begin as positions are placed from the
  // last one backwards.
  for (int64_t u = 1; u < num_unique; ++u) offsets[u] += offsets[u - 1];
  offsets[num_unique] = n;
  for (int64_t i = n - 1; i >= 0; --i) segments->positions[--offsets[inverse[i]]] = static_cast<int32_t>(i);
}

}  // namespace sok
