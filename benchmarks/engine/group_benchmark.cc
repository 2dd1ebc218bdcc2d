// The bare engine's lookup and training step for a group of tables, measured on demand.
//
// Started by benchmarks/lookup_and_step.py, which interleaves it with sessions. It fills its tables, prints
// "ready", and answers every line "<ids> <what> <calls>" on standard input with two numbers, the milliseconds
// that one of `calls` calls took and those of processor time that it used: <ids> counts the --dense and
// --mean files from 0 on, <what> is forward, lookup or step.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/group/group_lookup.h"
#include "cc/group/group_training.h"
#include "cc/table/table.h"

namespace sok {
namespace {

struct Flags {
  int64_t features = 1;
  int64_t rows = 1;  // of each table
  int64_t dim = 1;
  int64_t batch = 1;
  int64_t batches = 1;
  int64_t threads = 1;
  std::string optimizer = "lazy_adam";
  std::vector<std::pair<bool, std::string>> id_files;  // (pooled, path)
};

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "group_benchmark: %s\n", message.c_str());
  std::exit(1);
}

void Check(const Status& status) {
  if (!status.ok()) Fail(status.message());
}

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  const std::pair<std::string, int64_t*> numbers[] = {
      {"--features", &flags.features}, {"--rows", &flags.rows},       {"--dim", &flags.dim},
      {"--batch", &flags.batch},       {"--batches", &flags.batches}, {"--threads", &flags.threads}};
  if (argc % 2 == 0) Fail("every flag takes a value");
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    bool known = name == "--optimizer" || name == "--dense" || name == "--mean";
    if (name == "--optimizer") flags.optimizer = value;
    if (name == "--dense" || name == "--mean") flags.id_files.emplace_back(name == "--mean", value);
    for (const auto& [number, to] : numbers) {
      if (name != number) continue;
      *to = std::atoll(value.c_str());
      if (*to < 1) Fail(name + " must be at least 1, not " + value);
      known = true;
    }
    if (!known) Fail("unknown flag " + name);
  }
  return flags;
}

// Alpha and the rest as bench/optimizers.py has them; a constant alpha costs what a changing one does.
std::vector<float> HyperParameters(const std::string& optimizer) {
  if (optimizer == "sgd") return {0.001f};
  if (optimizer == "adagrad") return {0.001f, 0.1f, 0.0f};
  if (optimizer == "rowwise_adagrad") return {0.001f, 0.1f, 1e-7f};
  if (optimizer == "lazy_adam" || optimizer == "adam") return {0.001f, 0.9f, 0.999f, 1e-8f};
  Fail("no hyper-parameters for optimizer " + optimizer);
}

struct FeatureIds {
  std::vector<int64_t> offsets;
  std::vector<int64_t> ids;
};
using Batch = std::vector<FeatureIds>;

struct BatchSet {
  bool pooled;
  std::vector<Batch> batches;
};

BatchSet ReadBatches(const Flags& flags, bool pooled, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto read = [&](int64_t count) {
    std::vector<int64_t> values(count);
    file.read(reinterpret_cast<char*>(values.data()), count * static_cast<int64_t>(sizeof(int64_t)));
    if (!file) Fail("cannot read " + std::to_string(count) + " numbers from " + path);
    return values;
  };
  BatchSet set{pooled, std::vector<Batch>(flags.batches, Batch(flags.features))};
  for (Batch& batch : set.batches) {
    for (FeatureIds& feature : batch) {
      feature.offsets = read(flags.batch + 1);
      feature.ids = read(feature.offsets.back());
    }
  }
  return set;
}

class GroupBenchmark {
 public:
  explicit GroupBenchmark(const Flags& flags)
      : flags_(flags), executor_(static_cast<int>(flags.threads)), hyper_(HyperParameters(flags.optimizer)) {
    for (const auto& [pooled, path] : flags.id_files) sets_.push_back(ReadBatches(flags, pooled, path));
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

  int64_t num_sets() const { return static_cast<int64_t>(sets_.size()); }

  void Lookup(const BatchSet& set, bool training) {
    const Batch& batch = set.batches[next_batch_++ % set.batches.size()];
    plan_.training = training;
    plan_.lookups.resize(batch.size());
    std::vector<Span<const int64_t>> ids;
    for (size_t f = 0; f < batch.size(); ++f) {
      sok::Lookup& lookup = plan_.lookups[f];
      lookup.table = static_cast<int>(f);
      lookup.pooled = set.pooled;
      lookup.combiner = Combiner::kMean;
      lookup.count = static_cast<int64_t>(batch[f].ids.size());
      lookup.offsets.clear();
      if (set.pooled) lookup.offsets = batch[f].offsets;
      ids.push_back(batch[f].ids);
    }
    Check(GroupForward(executor_, pointers_, ids, &plan_, output_rows_, &scratch_));
  }

  void Step(const BatchSet& set) {
    Lookup(set, true);
    std::vector<TableStep> steps;
    for (size_t f = 0; f < pointers_.size(); ++f) {
      steps.push_back({static_cast<int>(f), pointers_[f], Span<const float>(hyper_)});
    }
    Check(GroupTrain(executor_, plan_, gradient_rows_, flags_.optimizer, steps, &gradient_scratch_));
  }

  // Makes `calls` calls: the milliseconds of one and its processor time.
  std::pair<double, double> Measure(int64_t set, const std::string& what, int64_t calls) {
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t cpu_begin = std::clock();
    for (int64_t call = 0; call < calls; ++call) {
      if (what == "step") {
        Step(sets_[set]);
      } else {
        Lookup(sets_[set], what == "lookup");
      }
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    const double cpu_ms = 1e3 * static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
    return {took.count() / static_cast<double>(calls), cpu_ms / static_cast<double>(calls)};
  }

 private:
  // Tables that hold the ids [0, rows), in this order.
  void MakeTables() {
    std::vector<int64_t> ids(flags_.rows);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<int64_t> rows(flags_.rows);
    for (int64_t f = 0; f < flags_.features; ++f) {
      TableOptions options;
      options.name = "table_" + std::to_string(f);
      options.dim = flags_.dim;
      options.initializer = {InitializerKind::kUniform, -0.05f, 0.05f, static_cast<uint64_t>(f)};
      StatusOr<std::unique_ptr<Table>> table = Table::Create(executor_, options);
      Check(table.status());
      tables_.push_back(std::move(table.value()));
      pointers_.push_back(tables_.back().get());
      Check(tables_.back()->FindOrMake(executor_, ids, Span<int64_t>(rows)));
    }
  }

  const Flags flags_;
  ThreadPool executor_;
  const std::vector<float> hyper_;
  std::vector<BatchSet> sets_;
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
  sok::GroupBenchmark benchmark(sok::ParseFlags(argc, argv));
  std::cout << "ready" << std::endl;
  int64_t set;
  std::string what;
  int64_t calls;
  while (std::cin >> set >> what >> calls) {
    if (set < 0 || set >= benchmark.num_sets()) sok::Fail("no ids number " + std::to_string(set));
    if (what != "forward" && what != "lookup" && what != "step") sok::Fail("cannot measure " + what);
    const auto [ms, cpu_ms] = benchmark.Measure(set, what, calls);
    std::cout << ms << " " << cpu_ms << std::endl;
  }
  return 0;
}
