#ifndef SOK_BENCHMARKS_ENGINE_ON_DEMAND_H_
#define SOK_BENCHMARKS_ENGINE_ON_DEMAND_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"

namespace sok {

// A program that measures on demand, so that it can be interleaved with others (bench/processes.py). It
// prints "ready". Then it answers every line "0 <what> <calls>" on its standard input with the mean wall time
// and processor time of one call, in milliseconds.

struct OnDemandFlags {
  int64_t features = 1;
  int64_t rows = 1;  // of each table
  int64_t dim = 1;
  int64_t batch = 1;
  int64_t batches = 1;
  int64_t threads = 1;
  std::string optimizer = "lazy_adam";
  std::string row_type = "float32";  // of the tables' rows
  std::string slot_type = "float32";
  int64_t memory = 0;   // bytes of each table's records in memory; 0: all
  std::string folder;   // of the others
  bool pooled = false;  // --mean; false: --dense
  std::string ids;      // the file that either of them names
};

// One feature's ids in a batch: bag b holds ids[offsets[b]:offsets[b + 1]].
struct FeatureIds {
  std::vector<int64_t> offsets;
  std::vector<int64_t> ids;
};

[[noreturn]] inline void Fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

inline void Check(const Status& status) {
  if (!status.ok()) Fail(status.message());
}

inline OnDemandFlags ParseOnDemandFlags(int argc, char** argv) {
  OnDemandFlags flags;
  const std::pair<std::string, int64_t*> numbers[] = {
      {"--features", &flags.features}, {"--rows", &flags.rows},       {"--dim", &flags.dim},
      {"--batch", &flags.batch},       {"--batches", &flags.batches}, {"--threads", &flags.threads},
      {"--memory", &flags.memory}};
  if (argc % 2 == 0) Fail("every flag takes a value");
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    bool known = name == "--dense" || name == "--mean";
    const std::pair<std::string, std::string*> texts[] = {{"--optimizer", &flags.optimizer},
                                                          {"--row_type", &flags.row_type},
                                                          {"--slot_type", &flags.slot_type},
                                                          {"--folder", &flags.folder}};
    for (const auto& [text, to] : texts) {
      if (name != text) continue;
      *to = value;
      known = true;
    }
    if (name == "--dense" || name == "--mean") {
      flags.pooled = name == "--mean";
      flags.ids = value;
    }
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

// Reads a file of Job.write_ids in bench/jobs.py: the ids of feature f in batch b are at [b][f].
inline std::vector<std::vector<FeatureIds>> ReadBatches(const OnDemandFlags& flags) {
  std::ifstream file(flags.ids, std::ios::binary);
  const auto read = [&](int64_t count) {
    std::vector<int64_t> values(count);
    file.read(reinterpret_cast<char*>(values.data()), count * static_cast<int64_t>(sizeof(int64_t)));
    if (!file) Fail("cannot read " + std::to_string(count) + " numbers from " + flags.ids);
    return values;
  };
  std::vector<std::vector<FeatureIds>> batches(flags.batches, std::vector<FeatureIds>(flags.features));
  for (std::vector<FeatureIds>& batch : batches) {
    for (FeatureIds& feature : batch) {
      feature.offsets = read(flags.batch + 1);
      feature.ids = read(feature.offsets.back());
    }
  }
  return batches;
}

// Answers lines until the input ends. `call(what)` makes one call; it calls Fail if it does not know `what`.
inline void AnswerLines(const std::function<void(const std::string&)>& call) {
  std::cout << "ready" << std::endl;
  int64_t zero;
  std::string what;
  int64_t calls;
  while (std::cin >> zero >> what >> calls) {
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t cpu_begin = std::clock();
    for (int64_t i = 0; i < calls; ++i) call(what);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    const double cpu_ms = 1e3 * static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
    const auto n = static_cast<double>(calls);
    std::cout << took.count() / n << " " << cpu_ms / n << std::endl;
  }
}

}  // namespace sok

#endif  // SOK_BENCHMARKS_ENGINE_ON_DEMAND_H_
