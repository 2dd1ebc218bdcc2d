// Parts of the engine, and for most of them a bare loop that does the least necessary work. Measures on
// demand (on_demand.h) for benchmarks/measure.py. Takes the flags of group_benchmark; only forward has
// several features.
//
// <what> is one of
//   dedup             the distinct ids of a batch
//   find              the rows of a batch's ids in an index of --rows ids
//   probe:LINES       the same by a bare linear probe, with LINES cache lines in flight
//   gather, pool      the rows of a batch's ids, or the means of its bags; ids are resolved beforehand
//   gather:LINES, pool:LINES   the same by a bare loop over row numbers, with LINES cache lines in flight
//   forward           the means of the bags of all features by the bare loop, with the best number of lines
//   update            the optimizer's step on a batch's distinct rows, which exact Adam catches up first
//   update:bare       LazyAdam's arithmetic on the same records
//   hand_over:TIMES   TIMES transfers of a cache line to another thread and back
//   busy:THREADS      arithmetic on each of so many threads
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/engine/bare_loops.h"
#include "benchmarks/engine/on_demand.h"
#include "cc/base/thread_pool.h"
#include "cc/base/vectorize.h"
#include "cc/cpu/dedup/dedup.h"
#include "cc/cpu/index/id_index.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/cpu/pooling/pool.h"
#include "cc/cpu/store/row_store.h"

namespace sok {
namespace {

// Enough work for a thread.
constexpr int64_t kNsPerShare = 10'000'000;
const std::vector<float> kAdam = {1e-3f, 0.9f, 0.999f, 1e-8f};

class Parts {
 public:
  explicit Parts(const OnDemandFlags& flags) : flags_(flags), executor_(static_cast<int>(flags.threads)) {
    if (!flags.ids.empty()) batches_ = ReadBatches(flags);
  }

  // Makes a part's inputs, except ids, in its first call, which is not measured.
  void Call(const std::string& what) {
    const size_t colon = what.find(':');
    const std::string part = what.substr(0, colon);
    const std::string argument = colon == std::string::npos ? "" : what.substr(colon + 1);
    const int64_t number = std::atoll(argument.c_str());
    if (part == "hand_over") return HandOver(number);
    if (part == "busy") return KeepBusy(number);
    if (batches_.empty()) Fail(part + " needs ids");
    const size_t batch = next_batch_++ % batches_.size();
    if (part == "forward") return BestForward(batches_[batch]);
    const FeatureIds& bags = batches_[batch][0];
    if (part == "dedup") return Dedup(bags);
    if (part == "find" || part == "probe") return Find(bags, number);
    if (part == "update") return Update(Resolve(batch).ids, argument == "bare");
    if (part != "gather" && part != "pool") Fail("cannot measure " + what);
    MakeRows();
    if (number > 0) return BareForward(batches_[batch], part == "pool", number);
    Forward(bags, Resolve(batch), part == "pool");
  }

 private:
  // A batch's distinct ids, pointers to their rows, and for each id the number of its distinct id.
  struct Resolved {
    std::vector<int64_t> ids;
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
    const auto ids = static_cast<int64_t>(bags.ids.size());
    float* const out = Output(0, pooled ? flags_.batch : ids);
    if (pooled) {
      PoolForward(executor_, batch.rows, batch.inverse, bags.offsets, {}, Combiner::kMean, flags_.dim, out,
                  flags_.dim);
    } else {
      GatherForward(executor_, batch.rows, batch.inverse, flags_.dim, out, flags_.dim);
    }
  }

  void BestForward(const std::vector<FeatureIds>& batch) {
    MakeRows();
    if (best_lines_ == 0) {
      best_lines_ = BestLines([&](int64_t lines) { BareForward(batch, true, lines); });
    }
    BareForward(batch, true, best_lines_);
  }

  // Id i is row i. Each thread gets a share of every feature's bags, so that all have the same amount of
  // work.
  void BareForward(const std::vector<FeatureIds>& batch, bool pooled, int64_t lines) {
    const int64_t dim = flags_.dim;
    const int64_t ahead = RowsAhead(lines, dim);
    for (size_t f = 0; f < batch.size(); ++f) {
      Output(f, pooled ? flags_.batch : static_cast<int64_t>(batch[f].ids.size()));
    }
    executor_.ParallelFor(flags_.threads, kNsPerShare, [&](int64_t begin, int64_t end) {
      for (size_t f = 0; f < batch.size(); ++f) {
        const FeatureIds& bags = batch[f];
        const int64_t items = pooled ? flags_.batch : static_cast<int64_t>(bags.ids.size());
        const int64_t first = items * begin / flags_.threads;
        const int64_t last = items * end / flags_.threads;
        const auto* const rows = static_cast<const float*>(rows_[f].data());
        float* const out = outputs_[f].data();
        RunVectorized([&] {
          if (pooled) {
            BarePool(rows, bags.ids, bags.offsets, first, last, dim, ahead, out);
          } else {
            BareGather(rows, bags.ids, first, last, dim, ahead, out);
          }
        });
      }
    });
  }

  void Update(const std::vector<int64_t>& rows, bool bare) {
    MakeStore();
    if (gradients_.size() < rows.size() * flags_.dim) gradients_.assign(rows.size() * flags_.dim, 1e-3f);
    if (bare) return BareLazyAdam(rows, gradients_.data(), &*store_);
    optimizer_->CatchUp(executor_, rows, &*store_);
    Check(optimizer_->Apply(executor_, kAdam, rows, StoredRowGradients(gradients_.data(), flags_.dim),
                            &*store_));
  }

  float* Output(size_t feature, int64_t rows) {
    if (outputs_.size() <= feature) outputs_.resize(feature + 1);
    std::vector<float>& output = outputs_[feature];
    if (output.size() < static_cast<size_t>(rows * flags_.dim)) output.resize(rows * flags_.dim);
    return output.data();
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
    const int64_t floats = flags_.rows * flags_.dim;
    while (static_cast<int64_t>(rows_.size()) < flags_.features) {
      StatusOr<PageBuffer> buffer = PageBuffer::Allocate(floats * static_cast<int64_t>(sizeof(float)));
      Check(buffer.status());
      float* const rows = static_cast<float*>(buffer.value().data());
      // Written, so that every page is backed by memory.
      for (int64_t i = 0; i < floats; ++i) rows[i] = static_cast<float>(i % 1021);
      rows_.push_back(std::move(buffer.value()));
    }
  }

  void MakeStore() {
    if (store_.has_value()) return;
    store_.emplace(flags_.dim);
    optimizer_ = std::move(MakeOptimizer(flags_.optimizer).value());
    Check(store_->SetSlots(optimizer_->Slots(flags_.dim, kAdam)));
    Check(store_->Reserve(flags_.rows));
    Check(optimizer_->Reserve(flags_.rows));
    for (int64_t row = 0; row < flags_.rows; ++row) {
      optimizer_->OnNewRow(row);
      store_->weights(row)[0] = 1.0f;
      store_->FillSlots(row);
    }
  }

  const Resolved& Resolve(size_t number) {
    Resolved& resolved = resolved_[number];
    if (!resolved.inverse.empty()) return resolved;
    Dedup(batches_[number][0]);
    resolved.ids = unique_;
    resolved.inverse = inverse_;
    for (const int64_t id : unique_) {
      if (!rows_.empty()) {
        resolved.rows.push_back(static_cast<const float*>(rows_[0].data()) + id * flags_.dim);
      }
    }
    return resolved;
  }

  const OnDemandFlags flags_;
  ThreadPool executor_;
  std::vector<std::vector<FeatureIds>> batches_;
  size_t next_batch_ = 0;
  Deduplicator deduplicator_;
  std::vector<int64_t> unique_;
  std::vector<int32_t> inverse_;
  IdIndex index_;
  std::optional<BareTable> bare_table_;
  std::vector<int64_t> found_;
  std::vector<PageBuffer> rows_;             // by feature
  std::vector<std::vector<float>> outputs_;  // by feature
  std::map<size_t, Resolved> resolved_;      // by batch
  int64_t best_lines_ = 0;
  std::optional<RowStore> store_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> gradients_;
};

}  // namespace
}  // namespace sok

int main(int argc, char** argv) {
  sok::Parts parts(sok::ParseOnDemandFlags(argc, argv));
  sok::AnswerLines([&](const std::string& what) { parts.Call(what); });
  return 0;
}
