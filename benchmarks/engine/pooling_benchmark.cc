// Forward and backward of a lookup whose ids are resolved: GatherForward, PoolForward and SegmentSum on one
// and two threads, compared with the machine's limit, a bare loop that copies rows with prefetching.
//
// Ids are Zipf 1.05 over tables of 0.5 and 3 GB; every run takes the next of many batches.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

#include "benchmarks/engine/bare_loops.h"
#include "benchmarks/engine/comparison.h"
#include "cc/base/prefetch.h"
#include "cc/base/testing/test_ids.h"
#include "cc/base/thread_pool.h"
#include "cc/dedup/segments.h"
#include "cc/pooling/pool.h"
#include "cc/pooling/segment_sum.h"
#include "cc/store/row_store.h"

namespace sok {
namespace {

constexpr int kRounds = 41;
constexpr int64_t kBatches = 16;
constexpr int64_t kSamples = 4096;
constexpr int64_t kIds = 26 * kSamples;

struct Batch {
  std::vector<const float*> rows;
  std::vector<int32_t> inverse;
  Segments segments;
};

std::vector<Batch> MakeBatches(RowStore* store) {
  const std::vector<int64_t> ids = ZipfIds(kBatches * kIds, store->rows(), 1.05, 1);
  std::vector<Batch> batches(kBatches);
  for (int64_t b = 0; b < kBatches; ++b) {
    Batch& batch = batches[b];
    std::unordered_map<int64_t, int32_t> place;
    for (int64_t i = b * kIds; i < (b + 1) * kIds; ++i) {
      const auto [it, is_new] = place.try_emplace(ids[i], static_cast<int32_t>(batch.rows.size()));
      if (is_new) batch.rows.push_back(store->weights(ids[i]));
      batch.inverse.push_back(it->second);
    }
    BuildSegments(batch.inverse, static_cast<int64_t>(batch.rows.size()), &batch.segments);
  }
  return batches;
}

// As sok::BareGather, but over pointers, because the rows of a store are not contiguous.
void GatherPointers(const Batch& batch, int64_t dim, int64_t ahead, float* out) {
  const int64_t n = static_cast<int64_t>(batch.inverse.size());
  for (int64_t i = 0; i < n; ++i) {
    if (i + ahead < n) PrefetchFloats(batch.rows[batch.inverse[i + ahead]], dim);
    const float* __restrict row = batch.rows[batch.inverse[i]];
    float* __restrict to = out + i * dim;
    for (int64_t c = 0; c < dim; ++c) to[c] = row[c];
  }
}

void Compare(int64_t num_rows, int64_t dim) {
  RowStore store(dim);
  if (!store.Reserve(num_rows).ok()) std::exit(1);
  for (int64_t row = 0; row < num_rows; ++row) store.weights(row)[0] = static_cast<float>(row);
  const std::vector<Batch> batches = MakeBatches(&store);
  std::vector<float> out(static_cast<size_t>(kIds * dim));
  std::vector<float> sums(static_cast<size_t>(kIds * dim));
  std::vector<int64_t> offsets;  // bags of 26
  for (int64_t b = 0; b <= kSamples; ++b) offsets.push_back(b * 26);
  std::vector<const float*> grad_rows;  // of bags, and of single occurrences
  for (int64_t i = 0; i < kIds; ++i) grad_rows.push_back(out.data() + i * dim);

  const double megabytes = static_cast<double>(2 * kIds * dim * 4) / 1e6;
  Comparison comparison(std::to_string(num_rows) + " rows of " + std::to_string(dim) + ", " +
                            std::to_string(kIds) + " occurrences: a gather moves " +
                            std::to_string(megabytes) + " MB",
                        kIds);
  InlineExecutor one;
  ThreadPool two(2);
  int64_t turn = 0;
  const auto next = [&]() -> const Batch& { return batches[turn++ % kBatches]; };
  const auto gather = [&](int64_t lines) { GatherPointers(next(), dim, RowsAhead(lines, dim), out.data()); };
  const int64_t best = BestLines(gather);
  comparison.Add("bare gather, " + std::to_string(best) + " lines in flight, 1 thread",
                 [&] { gather(best); });
  for (Executor* executor : {static_cast<Executor*>(&one), static_cast<Executor*>(&two)}) {
    const std::string threads = executor == &one ? ", 1 thread" : ", 2 threads";
    comparison.Add("GatherForward" + threads, [&, executor] {
      const Batch& batch = next();
      GatherForward(*executor, batch.rows, batch.inverse, dim, out.data(), dim);
    });
    comparison.Add("PoolForward, mean of 26" + threads, [&, executor] {
      const Batch& batch = next();
      PoolForward(*executor, batch.rows, batch.inverse, offsets, {}, Combiner::kMean, dim, out.data(), dim);
    });
    comparison.Add("SegmentSum" + threads, [&, executor] {
      SegmentSum(*executor, next().segments.offsets, next().segments.positions, grad_rows, {}, dim,
                 sums.data());
    });
  }
  comparison.Run(kRounds);
}

}  // namespace
}  // namespace sok

int main() {
  for (const int64_t dim : {64, 16}) {
    sok::Compare((int64_t{1} << 29) / (dim * 4), dim);
    sok::Compare((int64_t{3} << 30) / (dim * 4), dim);
  }
  return 0;
}
