// The bare engine's lookup and training step for a group of tables, measured on demand (on_demand.h).
//
// benchmarks/measure.py starts it and interleaves it with sessions. <what> is forward, lookup or step.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/engine/on_demand.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/group/group_lookup.h"
#include "cc/cpu/group/group_training.h"
#include "cc/cpu/table/table.h"

namespace sok {
namespace {

// As in make_optimizer of bench/session_sides.py. Adam's step size is constant here, which does not affect
// the time.
std::vector<float> HyperParameters(const std::string& optimizer) {
  if (optimizer == "sgd") return {0.001f};
  if (optimizer == "adagrad") return {0.001f, 0.1f, 0.0f};
  if (optimizer == "rowwise_adagrad") return {0.001f, 0.1f, 1e-7f};
  if (optimizer == "rowwise_adam") return {0.001f, 0.9f, 0.999f, 1e-8f, 0.0f};
  if (optimizer == "lazy_adam" || optimizer == "adam") return {0.001f, 0.9f, 0.999f, 1e-8f};
  Fail("no hyper-parameters for optimizer " + optimizer);
}

FloatType TypeNamed(const std::string& name) {
  for (const FloatType type : {FloatType::kFloat32, FloatType::kFloat16, FloatType::kBfloat16}) {
    if (name == NameOf(type)) return type;
  }
  Fail("no type of numbers is called " + name);
}

class GroupBenchmark {
 public:
  explicit GroupBenchmark(const OnDemandFlags& flags)
      : flags_(flags), executor_(static_cast<int>(flags.threads)), hyper_(HyperParameters(flags.optimizer)) {
    batches_ = ReadBatches(flags);
    MakeTables();
    std::mt19937 random(1);
    std::uniform_real_distribution<float> gradient(0.5f, 1.5f);
    for (int64_t f = 0; f < flags.features; ++f) {
      outputs_.emplace_back(flags.batch * flags.dim);
      gradients_.emplace_back(flags.batch * flags.dim);
      for (float& g : gradients_.back()) g = gradient(random);
      output_rows_.push_back({outputs_.back().data(), flags.dim});
      gradient_rows_.push_back({gradients_.back().data(), flags.dim});
    }
  }

  void Lookup(bool training) {
    const std::vector<FeatureIds>& batch = batches_[next_batch_++ % batches_.size()];
    plan_.training = training;
    plan_.lookups.resize(batch.size());
    std::vector<Span<const int64_t>> ids;
    for (size_t f = 0; f < batch.size(); ++f) {
      LookupBags& lookup = plan_.lookups[f];
      lookup.table = static_cast<int>(f);
      lookup.pooled = flags_.pooled;
      lookup.combiner = Combiner::kMean;
      lookup.count = static_cast<int64_t>(batch[f].ids.size());
      lookup.offsets.clear();
      if (flags_.pooled) lookup.offsets = batch[f].offsets;
      ids.push_back(batch[f].ids);
    }
    Check(GroupForward(executor_, pointers_, ids, &plan_, output_rows_, &scratch_));
  }

  void Step() {
    Lookup(true);
    std::vector<EngineStep> steps;
    for (size_t f = 0; f < pointers_.size(); ++f) {
      steps.push_back({static_cast<int>(f), pointers_[f], Span<const float>(hyper_)});
    }
    Check(GroupTrain(executor_, plan_, gradient_rows_, flags_.optimizer, steps, &gradient_scratch_));
  }

  void Call(const std::string& what) {
    if (what == "step") return Step();
    if (what != "forward" && what != "lookup") Fail("cannot measure " + what);
    Lookup(what == "lookup");
  }

 private:
  // Tables that hold the ids [0, rows), in this order.
  void MakeTables() {
    for (int64_t f = 0; f < flags_.features; ++f) {
      TableOptions options;
      options.name = "table_" + std::to_string(f);
      options.dim = flags_.dim;
      options.record = {TypeNamed(flags_.row_type), TypeNamed(flags_.slot_type)};
      options.initializer = {InitializerKind::kUniform, -0.05f, 0.05f, static_cast<uint64_t>(f)};
      options.tiers = {flags_.memory, flags_.folder, /*by_frequency=*/true};
      StatusOr<std::unique_ptr<Table>> table = Table::Create(executor_, options);
      Check(table.status());
      tables_.push_back(std::move(table.value()));
      pointers_.push_back(tables_.back().get());
      // Not more rows at once than a step has, or they would all stay in memory.
      std::vector<int64_t> rows(std::min<int64_t>(flags_.rows, 4096));
      for (int64_t first = 0; first < flags_.rows; first += static_cast<int64_t>(rows.size())) {
        std::vector<int64_t> ids(std::min<int64_t>(flags_.rows - first, static_cast<int64_t>(rows.size())));
        std::iota(ids.begin(), ids.end(), first);
        tables_.back()->BeginCall();
        Check(tables_.back()->FindOrMake(executor_, ids, Span<int64_t>(rows).subspan(0, ids.size())));
      }
    }
  }

  const OnDemandFlags flags_;
  ThreadPool executor_;
  const std::vector<float> hyper_;
  std::vector<std::vector<FeatureIds>> batches_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<Table*> pointers_;
  std::vector<std::vector<float>> outputs_;
  std::vector<std::vector<float>> gradients_;
  LookupPlan plan_;
  GroupScratch scratch_;
  GradientScratch gradient_scratch_;
  std::vector<OutputRows> output_rows_;
  std::vector<GradientRows> gradient_rows_;
  size_t next_batch_ = 0;
};

}  // namespace
}  // namespace sok

int main(int argc, char** argv) {
  sok::GroupBenchmark benchmark(sok::ParseOnDemandFlags(argc, argv));
  sok::AnswerLines([&](const std::string& what) { benchmark.Call(what); });
  return 0;
}
