// Parts of the engine, and for most of them a bare loop that does the least necessary work. Measures on
// demand for benchmarks/engine_parts.py. Takes the flags of group_benchmark, with one feature.
//
// <what> is one of
//   dedup             the distinct ids of a batch
//   find              the rows of a batch's ids in an index of --rows ids
//   probe:LINES       the same by a bare linear probe, with LINES cache lines in flight
//   gather, pool      the rows of a batch's ids, or the means of its bags; ids are resolved beforehand
//   gather:LINES, pool:LINES   the same by a bare loop over row numbers, with LINES cache lines in flight
//   hand_over:TIMES   TIMES transfers of a cache line to another thread and back
#include <cstdint>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/engine/bare_loops.h"
#include "benchmarks/engine/on_demand.h"
#include "benchmarks/engine/two_cores.h"
#include "cc/base/thread_pool.h"
#include "cc/base/vectorize.h"
#include "cc/dedup/dedup.h"
#include "cc/index/id_index.h"
#include "cc/pooling/pool.h"

namespace sok {
namespace {

// Enough work for a thread.
constexpr int64_t kNsPerShare = 10'000'000;

void Check(const Status& status) {
  if (!status.ok()) Fail(status.message());
}

class Parts {
 public:
  explicit Parts(const OnDemandFlags& flags) : flags_(flags), executor_(static_cast<int>(flags.threads)) {
    if (flags.features != 1) Fail("--features must be 1, not " + std::to_string(flags.features));
    for (const auto& [pooled, path] : flags.id_files) sets_.push_back(ReadBatches(flags, pooled, path));
  }

  int64_t num_sets() const { return static_cast<int64_t>(sets_.size()); }

  // Makes a part's inputs, except ids, in its first call, which is not measured.
  void Call(int64_t set, const std::string& what) {
    const size_t colon = what.find(':');
    const std::string part = what.substr(0, colon);
    const int64_t argument = colon == std::string::npos ? 0 : std::atoll(what.c_str() + colon + 1);
    if (part == "hand_over") return HandOver(argument);
    const size_t number = next_batch_++ % sets_[set].batches.size();
    const FeatureIds& bags = sets_[set].batches[number][0];
    if (part == "dedup") return Dedup(bags);
    if (part == "find" || part == "probe") return Find(bags, argument);
    if (part != "gather" && part != "pool") Fail("cannot measure " + what);
    MakeRows();
    if (argument > 0) return BareForward(bags, part == "pool", argument);
    Forward(bags, Resolve(set, number), part == "pool");
  }

 private:
  // A batch with resolved ids: pointers to the distinct rows, and for each id the index of its row's pointer.
  struct Resolved {
    std::vector<const float*> rows;
    std::vector<int32_t> inverse;
  };

  void Dedup(const FeatureIds& bags) {
    inverse_.resize(bags.ids.size());
    Check(deduplicator_.Run(executor_, bags.ids, &unique_, Span<int32_t>(inverse_)));
  }

  void Find(const FeatureIds& bags, int64_t lines) {
    MakeIndex();
    found_.resize(bags.ids.size());
    if (lines > 0) return bare_table_->Find(bags.ids, lines, Span<int64_t>(found_));
    index_.Find(bags.ids, Span<int64_t>(found_));
  }

  void Forward(const FeatureIds& bags, const Resolved& batch, bool pooled) {
    if (pooled) {
      PoolForward(executor_, batch.rows, batch.inverse, bags.offsets, {}, Combiner::kMean, flags_.dim,
                  Output(flags_.batch), flags_.dim);
    } else {
      GatherForward(executor_, batch.rows, batch.inverse, flags_.dim,
                    Output(static_cast<int64_t>(bags.ids.size())), flags_.dim);
    }
  }

  void BareForward(const FeatureIds& bags, bool pooled, int64_t lines) {
    const int64_t dim = flags_.dim;
    const int64_t ahead = RowsAhead(lines, dim);
    const int64_t items = pooled ? flags_.batch : static_cast<int64_t>(bags.ids.size());
    const float* const rows = static_cast<const float*>(rows_->data());
    float* const out = Output(items);
    executor_.ParallelFor(flags_.threads, kNsPerShare, [&](int64_t begin, int64_t end) {
      const int64_t first = items * begin / flags_.threads;
      const int64_t last = items * end / flags_.threads;
      RunVectorized([&] {
        if (pooled) {
          BarePool(rows, bags.ids, bags.offsets, first, last, dim, ahead, out);
        } else {
          BareGather(rows, bags.ids, first, last, dim, ahead, out);
        }
      });
    });
  }

  float* Output(int64_t rows) {
    if (output_.size() < static_cast<size_t>(rows * flags_.dim)) output_.resize(rows * flags_.dim);
    return output_.data();
  }

  void MakeIndex() {
    if (bare_table_.has_value()) return;
    std::vector<int64_t> ids(flags_.rows);
    std::iota(ids.begin(), ids.end(), 0);
    Check(index_.Insert(ids, ids));  // id i is row i
    StatusOr<BareTable> table = BareTable::Make(ids);
    Check(table.status());
    bare_table_.emplace(std::move(table.value()));
  }

  void MakeRows() {
    if (rows_.has_value()) return;
    const int64_t floats = flags_.rows * flags_.dim;
    StatusOr<PageBuffer> buffer = PageBuffer::Allocate(floats * static_cast<int64_t>(sizeof(float)));
    Check(buffer.status());
    float* const rows = static_cast<float*>(buffer.value().data());
    // Written, so that every page is backed by memory.
    for (int64_t i = 0; i < floats; ++i) rows[i] = static_cast<float>(i % 1021);
    rows_.emplace(std::move(buffer.value()));
  }

  const Resolved& Resolve(int64_t set, size_t number) {
    Resolved& resolved = resolved_[{set, number}];
    if (!resolved.inverse.empty()) return resolved;
    const std::vector<int64_t>& ids = sets_[set].batches[number][0].ids;
    resolved.inverse.resize(ids.size());
    Check(deduplicator_.Run(executor_, ids, &unique_, Span<int32_t>(resolved.inverse)));
    for (const int64_t id : unique_) {
      resolved.rows.push_back(static_cast<const float*>(rows_->data()) + id * flags_.dim);
    }
    return resolved;
  }

  const OnDemandFlags flags_;
  ThreadPool executor_;
  std::vector<BatchSet> sets_;
  size_t next_batch_ = 0;
  Deduplicator deduplicator_;
  std::vector<int64_t> unique_;
  std::vector<int32_t> inverse_;
  IdIndex index_;
  std::optional<BareTable> bare_table_;
  std::vector<int64_t> found_;
  std::optional<PageBuffer> rows_;
  std::map<std::pair<int64_t, size_t>, Resolved> resolved_;  // by (set, number of the batch)
  std::vector<float> output_;
};

}  // namespace
}  // namespace sok

int main(int argc, char** argv) {
  sok::Parts parts(sok::ParseOnDemandFlags(argc, argv));
  sok::AnswerLines(parts.num_sets(), [&](int64_t set, const std::string& what) { parts.Call(set, what); });
  return 0;
}
