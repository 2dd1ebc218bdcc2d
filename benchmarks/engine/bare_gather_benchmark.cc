// The bound on the speed of a forward lookup, measured on demand: a plain loop that gathers rows at known
// positions with prefetching, from tables on huge pages. There is no index, dedup or training: id i is row i.
//
// Takes the flags of group_benchmark; <what> can only be forward.
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/engine/bare_loops.h"
#include "benchmarks/engine/on_demand.h"
#include "cc/base/huge_pages.h"
#include "cc/base/thread_pool.h"
#include "cc/base/vectorize.h"

namespace sok {
namespace {

// Enough work for a thread.
constexpr int64_t kNsPerShare = 10'000'000;

class GatherBenchmark {
 public:
  explicit GatherBenchmark(const OnDemandFlags& flags)
      : flags_(flags), executor_(static_cast<int>(flags.threads)) {
    for (const auto& [pooled, path] : flags.id_files) sets_.push_back(ReadBatches(flags, pooled, path));
    lines_.resize(sets_.size());
    std::mt19937 random(1);
    for (int64_t f = 0; f < flags.features; ++f) {
      const int64_t floats = flags.rows * flags.dim;
      StatusOr<PageBuffer> buffer = PageBuffer::Allocate(floats * static_cast<int64_t>(sizeof(float)));
      if (!buffer.ok()) Fail(buffer.status().message());
      float* rows = static_cast<float*>(buffer.value().data());
      // Written, so that every page is backed by memory.
      for (int64_t i = 0; i < floats; ++i) rows[i] = static_cast<float>(random() % 1024);
      tables_.push_back(std::move(buffer.value()));
      outputs_.emplace_back(static_cast<size_t>(flags.batch * flags.dim));
    }
  }

  int64_t num_sets() const { return static_cast<int64_t>(sets_.size()); }

  // Computes the means of all features' bags in the next batch of a set, with the best number of cache lines
  // in flight.
  void Forward(int64_t number) {
    if (lines_[number] == 0) lines_[number] = BestLines([&](int64_t lines) { Gather(number, lines); });
    Gather(number, lines_[number]);
  }

 private:
  void Gather(int64_t number, int64_t lines) {
    const BatchSet& set = sets_[number];
    const std::vector<FeatureIds>& batch = set.batches[next_batch_++ % set.batches.size()];
    const int64_t ahead = RowsAhead(lines, flags_.dim);
    // Each thread gets a share of every feature's bags, so that all threads have the same amount of work.
    executor_.ParallelFor(flags_.threads, kNsPerShare, [&](int64_t begin, int64_t end) {
      const int64_t first = flags_.batch * begin / flags_.threads;
      const int64_t last = flags_.batch * end / flags_.threads;
      RunVectorized([&] {
        for (int64_t f = 0; f < flags_.features; ++f) {
          BarePool(static_cast<const float*>(tables_[f].data()), batch[f].ids, batch[f].offsets, first, last,
                   flags_.dim, ahead, outputs_[f].data());
        }
      });
    });
  }

  const OnDemandFlags flags_;
  ThreadPool executor_;
  std::vector<BatchSet> sets_;
  std::vector<int64_t> lines_;  // in flight, for each set; 0 before its first call
  std::vector<PageBuffer> tables_;
  std::vector<std::vector<float>> outputs_;
  size_t next_batch_ = 0;
};

}  // namespace
}  // namespace sok

int main(int argc, char** argv) {
  sok::GatherBenchmark bound(sok::ParseOnDemandFlags(argc, argv));
  sok::AnswerLines(bound.num_sets(), [&](int64_t ids, const std::string& what) {
    if (what != "forward") sok::Fail("cannot measure " + what);
    bound.Forward(ids);
  });
  return 0;
}
