#ifndef SOK_BENCHMARKS_ENGINE_BARE_LOOPS_H_
#define SOK_BENCHMARKS_ENGINE_BARE_LOOPS_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "cc/base/hash.h"
#include "cc/base/huge_pages.h"
#include "cc/base/prefetch.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/store/row_store.h"

namespace sok {

// The machine's limits: loops that read memory as the engine must, with prefetching and huge pages, and do
// nothing else. The best number of cache lines in flight differs between machines, so every loop takes it as
// an argument, and a measurement uses the best of these.
constexpr int64_t kLinesToTry[] = {32, 64, 128, 256};

// How many rows ahead to prefetch, to have `lines` cache lines in flight.
inline int64_t RowsAhead(int64_t lines, int64_t dim) {
  const int64_t lines_of_row = (dim + kFloatsPerLine - 1) / kFloatsPerLine;
  return lines_of_row < lines ? lines / lines_of_row : 1;
}

// out row i = the row number ids[i], for i in [begin, end).
inline void BareGather(const float* rows, Span<const int64_t> ids, int64_t begin, int64_t end, int64_t dim,
                       int64_t ahead, float* out) {
  for (int64_t i = begin; i < end; ++i) {
    if (i + ahead < end) PrefetchFloats(rows + ids[i + ahead] * dim, dim);
    const float* __restrict row = rows + ids[i] * dim;
    float* __restrict to = out + i * dim;
    for (int64_t c = 0; c < dim; ++c) to[c] = row[c];
  }
}

// out row b = the mean of the rows of bag b, ids[offsets[b]:offsets[b + 1]], for b in [first, last).
inline void BarePool(const float* rows, Span<const int64_t> ids, Span<const int64_t> offsets, int64_t first,
                     int64_t last, int64_t dim, int64_t ahead, float* out) {
  const int64_t end = offsets[last];
  for (int64_t bag = first; bag < last; ++bag) {
    float* __restrict to = out + bag * dim;
    const int64_t bag_begin = offsets[bag];
    const int64_t bag_end = offsets[bag + 1];
    const float scale = 1.0f / static_cast<float>(bag_end - bag_begin);
    for (int64_t i = bag_begin; i < bag_end; ++i) {
      if (i + ahead < end) PrefetchFloats(rows + ids[i + ahead] * dim, dim);
      const float* __restrict row = rows + ids[i] * dim;
      if (i == bag_begin) {
        for (int64_t c = 0; c < dim; ++c) to[c] = row[c] * scale;
      } else {
        for (int64_t c = 0; c < dim; ++c) to[c] += row[c] * scale;
      }
    }
  }
}

// A hash table for ids of at least 0. Lookups must be of ids that it holds.
class BareTable {
 public:
  // Id ids[i] gets row i.
  static StatusOr<BareTable> Make(Span<const int64_t> ids) {
    uint64_t capacity = 16;
    while (capacity < 2 * static_cast<uint64_t>(ids.size())) capacity *= 2;
    StatusOr<PageBuffer> memory = PageBuffer::Allocate(static_cast<int64_t>(capacity * sizeof(Slot)));
    SOK_RETURN_IF_ERROR(memory.status());
    BareTable table(std::move(memory.value()), capacity - 1);
    for (uint64_t slot = 0; slot < capacity; ++slot) table.slots_[slot].id = kFree;
    for (int64_t row = 0; row < ids.size(); ++row) {
      uint64_t slot = Mix64(ids[row]) & table.mask_;
      while (table.slots_[slot].id != kFree) slot = (slot + 1) & table.mask_;
      table.slots_[slot] = {ids[row], row};
    }
    return table;
  }

  // rows[i] = the row of ids[i]; has `lines` cache lines in flight.
  void Find(Span<const int64_t> ids, int64_t lines, Span<int64_t> rows) const {
    const int64_t n = ids.size();
    for (int64_t i = 0; i < n; ++i) {
      if (i + lines < n) __builtin_prefetch(&slots_[Mix64(ids[i + lines]) & mask_]);
      uint64_t slot = Mix64(ids[i]) & mask_;
      while (slots_[slot].id != ids[i]) slot = (slot + 1) & mask_;
      rows[i] = slots_[slot].row;
    }
  }

 private:
  static constexpr int64_t kFree = -1;

  struct Slot {
    int64_t id;
    int64_t row;
  };

  BareTable(PageBuffer memory, uint64_t mask)
      : memory_(std::move(memory)), slots_(static_cast<Slot*>(memory_.data())), mask_(mask) {}

  PageBuffer memory_;
  Slot* slots_;
  uint64_t mask_;
};

// The value of kLinesToTry for which `run(lines)` is fastest, in several runs each.
inline int64_t BestLines(const std::function<void(int64_t)>& run) {
  int64_t best = 0;
  double best_seconds = 0;
  run(kLinesToTry[0]);
  for (const int64_t lines : kLinesToTry) {
    for (int i = 0; i < 5; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      run(lines);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (best == 0 || took.count() < best_seconds) {
        best = lines;
        best_seconds = took.count();
      }
    }
  }
  return best;
}

// The work of LazyAdam on one thread, without the engine's layers.
inline void BareLazyAdam(const std::vector<int64_t>& rows, const float* grads, RowStore* store) {
  const int64_t dim = store->dim();
  const int64_t block = PrefetchDistance(3 * dim);
  const auto n = static_cast<int64_t>(rows.size());
  const auto prefetch_block = [&](int64_t first) {
    for (int64_t i = first; i < std::min(n, first + block); ++i) {
      PrefetchFloats<true>(store->weights(rows[i]), 3 * dim);
    }
  };
  prefetch_block(0);
  for (int64_t i = 0; i < n; ++i) {
    if (i % block == 0) prefetch_block(i + block);
    float* __restrict w = store->weights(rows[i]);
    float* __restrict m = w + dim;
    float* __restrict v = m + dim;
    const float* __restrict g = grads + i * dim;
    for (int64_t c = 0; c < dim; ++c) {
      m[c] += (g[c] - m[c]) * (1.0f - 0.9f);
      v[c] += (g[c] * g[c] - v[c]) * (1.0f - 0.999f);
      w[c] -= m[c] * 1e-3f / (std::sqrt(v[c]) + 1e-8f);
    }
  }
}

// How close two cores are. A host may run a virtual machine's two cores on two cores that share an L3, on two
// cores with an L3 each, or on the two hardware threads of one core. This may change every second, and with
// it the speed-up by a second thread.

// Passes a cache line to another thread and back `times` times. The time of one transfer shows the distance
// between the threads' cores. Both threads spin, so the machine needs at least two cores.
inline void HandOver(int64_t times) {
  alignas(128) std::atomic<int64_t> turn{0};
  std::thread other([&turn, times] {
    for (int64_t i = 0; i < times; ++i) {
      while (turn.load(std::memory_order_acquire) != 2 * i + 1) continue;
      turn.store(2 * i + 2, std::memory_order_release);
    }
  });
  for (int64_t i = 0; i < times; ++i) {
    turn.store(2 * i + 1, std::memory_order_release);
    while (turn.load(std::memory_order_acquire) != 2 * i + 2) continue;
  }
  other.join();
}

// Arithmetic in registers and L1 only on each of so many threads, which share nothing.
inline void KeepBusy(int64_t threads) {
  const auto work = [] {
    float values[256] = {};
    for (int pass = 0; pass < 400'000; ++pass) {
      for (float& value : values) value = value * 1.0001f + 0.5f;
      asm volatile("" : : "r"(values) : "memory");  // else the compiler would remove the loop
    }
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace sok

#endif  // SOK_BENCHMARKS_ENGINE_BARE_LOOPS_H_
