#include "cc/dedup/dedup.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>
#include <utility>

#include "cc/base/hash.h"

namespace sok {
namespace {

// How many ids ahead a table's slot is asked for.
constexpr int64_t kAhead = 16;
// Smaller batches are done before other threads have started.
constexpr int64_t kMinPartitionedIds = 16 << 10;
// The table of a partition of about this many distinct ids fits into a core's L2 cache.
constexpr int64_t kPartitionIds = 8 << 10;
constexpr int kMaxPartitionBits = 8;
// Ids that one thread counts and scatters at a time.
constexpr int64_t kBlockIds = 16 << 10;
// Costs of an id, for the executor.
constexpr int64_t kScatterNs = 2;
constexpr int64_t kProbeNs = 5;
constexpr int64_t kRankNs = 1;

uint64_t HashOf(int64_t id) { return Mix64(static_cast<uint64_t>(id)); }

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
  const bool partitioned = executor.concurrency() > 1 && ids.size() >= kMinPartitionedIds;
  const Status status =
      partitioned ? RunPartitioned(executor, ids, unique, inverse) : RunWhole(ids, unique, inverse);
  if (status.ok()) last_unique_ = static_cast<int64_t>(unique->size());
  return status;
}

Status Deduplicator::RunWhole(Span<const int64_t> ids, std::vector<int64_t>* unique, Span<int32_t> inverse) {
  const int64_t n = ids.size();
  std::unique_ptr<ProbeTable> table = TakeTable();
  SOK_RETURN_IF_ERROR(table->Start(std::min(n, std::max(last_unique_ + last_unique_ / 4, n / 4))));
  SOK_RETURN_IF_ERROR(GrowTo(n * static_cast<int64_t>(sizeof(int64_t)), &scratch_ids_));
  int64_t* const distinct = static_cast<int64_t*>(scratch_ids_.data());
  int32_t count = 0;
  for (int64_t i = 0; i < std::min(n, kAhead); ++i) table->Prefetch(HashOf(ids[i]));
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) table->Prefetch(HashOf(ids[i + kAhead]));
    const int32_t position = table->FindOrStore(ids[i], HashOf(ids[i]), count);
    inverse[i] = position;
    distinct[count] = ids[i];
    if (position != count || ++count < table->room()) continue;
    SOK_RETURN_IF_ERROR(table->Start(2 * table->room()));
    for (int32_t u = 0; u < count; ++u) table->FindOrStore(distinct[u], HashOf(distinct[u]), u);
  }
  ReturnTable(std::move(table));
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
  // First occurrences get their ranks, as ~rank to tell them from positions; then the others read theirs.
  executor.ParallelFor(blocks, kBlockIds * kRankNs, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      int64_t rank = begin[b];
      for (int64_t i = b * kBlockIds; i < std::min(n, (b + 1) * kBlockIds); ++i) {
        if (inverse[i] != i) continue;
        (*unique)[rank] = ids[i];
        inverse[i] = static_cast<int32_t>(~rank);
        ++rank;
      }
    }
  });
  executor.ParallelFor(n, kRankNs, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      if (inverse[i] >= 0) inverse[i] = ~inverse[inverse[i]];
    }
  });
  executor.ParallelFor(n, kRankNs, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) inverse[i] = inverse[i] < 0 ? ~inverse[i] : inverse[i];
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
    std::unique_ptr<ProbeTable> table = TakeTable();
    for (int64_t p = begin; p < end; ++p) {
      const int64_t last = partition_begin_[p + 1];
      if (!table->Start(last - partition_begin_[p]).ok()) {
        failed = true;
        return;
      }
      for (int64_t i = partition_begin_[p]; i < last; ++i) {
        if (i + kAhead < last) table->Prefetch(HashOf(ids[i + kAhead]));
        first[positions[i]] = table->FindOrStore(ids[i], HashOf(ids[i]), positions[i]);
      }
    }
    ReturnTable(std::move(table));
  });
  if (failed) return ResourceExhausted("cannot allocate the working memory of ", first.size(), " ids");
  return OkStatus();
}

std::unique_ptr<ProbeTable> Deduplicator::TakeTable() {
  const std::lock_guard<std::mutex> lock(tables_mutex_);
  if (tables_.empty()) return std::make_unique<ProbeTable>();
  std::unique_ptr<ProbeTable> table = std::move(tables_.back());
  tables_.pop_back();
  return table;
}

void Deduplicator::ReturnTable(std::unique_ptr<ProbeTable> table) {
  const std::lock_guard<std::mutex> lock(tables_mutex_);
  tables_.push_back(std::move(table));
}

}  // namespace sok
