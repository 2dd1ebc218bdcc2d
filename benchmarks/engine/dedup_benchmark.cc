// Finding the distinct ids of a batch, in M ids/s: Deduplicator compared with std::unordered_map.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/engine/comparison.h"
#include "cc/base/testing/test_ids.h"
#include "cc/base/thread_pool.h"
#include "cc/dedup/dedup.h"
#include "cc/dedup/segments.h"
#include "cc/dedup/testing/dedup_reference.h"

namespace sok {
namespace {

constexpr int kRounds = 15;

void Compare(const std::string& title, const std::vector<int64_t>& ids) {
  InlineExecutor one;
  ThreadPool all(std::max<int>(2, std::thread::hardware_concurrency()));
  Deduplicator one_scratch;
  Deduplicator all_scratch;
  std::vector<int64_t> unique;
  std::vector<int32_t> inverse(ids.size());
  Segments segments;
  const auto run = [&](Deduplicator* deduplicator, Executor* executor) {
    if (!deduplicator->Run(*executor, ids, &unique, Span<int32_t>(inverse)).ok()) std::exit(1);
  };
  run(&one_scratch, &one);
  Comparison comparison(title + ", " + std::to_string(ids.size()) + " ids, " + std::to_string(unique.size()) +
                            " of them distinct",
                        static_cast<int64_t>(ids.size()));
  comparison.Add("std::unordered_map", [&] { ReferenceDedup(ids); });
  comparison.Add("Deduplicator, 1 thread", [&] { run(&one_scratch, &one); });
  comparison.Add("Deduplicator, 1 thread, new each time", [&] {
    Deduplicator fresh;
    run(&fresh, &one);
  });
  comparison.Add("Deduplicator, " + std::to_string(all.concurrency()) + " threads",
                 [&] { run(&all_scratch, &all); });
  comparison.Add("BuildSegments", [&] { BuildSegments(inverse, unique.size(), &segments); });
  comparison.Run(kRounds);
}

}  // namespace
}  // namespace sok

int main() {
  for (const int64_t n : {4 << 10, 106 << 10, 1 << 20, 4 << 20}) {
    sok::Compare("Zipf 1.05 over 10 M ids", sok::ZipfIds(n, 10'000'000, 1.05, 1));
  }
  sok::Compare("All distinct", sok::DistinctIds(1 << 20, 2));
  sok::Compare("One id", std::vector<int64_t>(1 << 20, 42));
  return 0;
}
