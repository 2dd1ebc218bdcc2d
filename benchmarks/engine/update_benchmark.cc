// One optimizer step over the distinct rows of a click-through batch (26 features, 4096 samples, Zipf 1.05):
// lazy and exact Adam, compared with a bare loop that does LazyAdam's arithmetic on the same records, with
// the engine's prefetching. Exact Adam is also measured as in training: rows are caught up when they are
// looked up, then updated.
//
// Every run takes the next of many batches, so that its rows are not in the cache from the previous run.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_set>
#include <vector>

#include "benchmarks/engine/comparison.h"
#include "cc/base/prefetch.h"
#include "cc/base/testing/test_ids.h"
#include "cc/base/thread_pool.h"
#include "cc/optimizers/optimizer.h"
#include "cc/store/row_store.h"

namespace sok {
namespace {

constexpr int kRounds = 41;
constexpr int64_t kBatches = 24;
constexpr int64_t kIdsPerBatch = 26 * 4096;
const std::vector<float> kHyper = {1e-3f, 0.9f, 0.999f, 1e-8f};

void ExitUnless(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

// Distinct row numbers of each batch, scattered over the table.
std::vector<std::vector<int64_t>> MakeBatches(int64_t rows) {
  const std::vector<int64_t> ids = ZipfIds(kBatches * kIdsPerBatch, rows, 1.05, 1);
  std::vector<std::vector<int64_t>> batches;
  for (int64_t b = 0; b < kBatches; ++b) {
    std::unordered_set<int64_t> seen;
    std::vector<int64_t> distinct;
    for (int64_t i = b * kIdsPerBatch; i < (b + 1) * kIdsPerBatch; ++i) {
      const int64_t row = static_cast<int64_t>(static_cast<uint64_t>(ids[i]) % static_cast<uint64_t>(rows));
      if (seen.insert(row).second) distinct.push_back(row);
    }
    batches.push_back(distinct);
  }
  return batches;
}

// The machine's limit: the work of LazyAdam on one thread, without the engine's layers.
void BareLoop(const std::vector<int64_t>& rows, const float* grads, RowStore* store) {
  const int64_t dim = store->dim();
  const int64_t block = PrefetchDistance(3 * dim);
  const int64_t n = static_cast<int64_t>(rows.size());
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

void Compare(int64_t num_rows, int64_t dim) {
  const std::vector<std::vector<int64_t>> batches = MakeBatches(num_rows);
  RowStore store(dim);
  auto lazy = std::move(MakeOptimizer("lazy_adam").value());
  auto exact = std::move(MakeOptimizer("adam").value());
  ExitUnless(store.Reserve(num_rows));
  ExitUnless(store.SetSlots(lazy->Slots(dim, kHyper)));
  ExitUnless(exact->Reserve(num_rows));
  size_t largest = 0;
  for (const auto& batch : batches) largest = std::max(largest, batch.size());
  std::vector<float> grads(largest * static_cast<size_t>(dim));
  for (size_t i = 0; i < grads.size(); ++i) grads[i] = 1e-3f * static_cast<float>(i % 97) - 0.04f;

  const int64_t n = static_cast<int64_t>(batches[0].size());
  // Records are read and written, gradients are read.
  const double megabytes = static_cast<double>(n * dim * 4 * (2 * 3 + 1)) / 1e6;
  Comparison comparison(std::to_string(num_rows) + " rows of " + std::to_string(dim) + ", " +
                            std::to_string(n) + " of them in a step: " + std::to_string(megabytes) +
                            " MB moved",
                        n);
  InlineExecutor one;
  ThreadPool two(2);
  int64_t turn = 0;
  const auto next = [&]() -> const std::vector<int64_t>& { return batches[turn++ % kBatches]; };
  comparison.Add("bare loop, 1 thread", [&] { BareLoop(next(), grads.data(), &store); });
  for (Executor* executor : {static_cast<Executor*>(&one), static_cast<Executor*>(&two)}) {
    const std::string threads = executor == &one ? ", 1 thread" : ", 2 threads";
    comparison.Add("LazyAdam" + threads, [&, executor] {
      ExitUnless(
          lazy->Apply(*executor, kHyper, next(), StoredRowGradients(grads.data(), store.dim()), &store));
    });
    comparison.Add("exact Adam" + threads, [&, executor] {
      ExitUnless(
          exact->Apply(*executor, kHyper, next(), StoredRowGradients(grads.data(), store.dim()), &store));
    });
    comparison.Add("exact Adam, caught up, then updated" + threads, [&, executor] {
      const std::vector<int64_t>& rows = next();
      exact->CatchUp(*executor, rows, &store);
      ExitUnless(
          exact->Apply(*executor, kHyper, rows, StoredRowGradients(grads.data(), store.dim()), &store));
    });
  }
  comparison.Run(kRounds);
}

}  // namespace
}  // namespace sok

int main() {
  sok::Compare(2'500'000, 64);
  sok::Compare(10'000'000, 16);
  return 0;
}
