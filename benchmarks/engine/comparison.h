#ifndef SOK_BENCHMARKS_ENGINE_COMPARISON_H_
#define SOK_BENCHMARKS_ENGINE_COMPARISON_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sok {

// Times several implementations of the same work and prints them as a table.
//
// Rounds are interleaved: every contender runs once in each round, so that a slow phase of the machine
// affects all of them.
class Comparison {
 public:
  // `title` heads the table; every run handles `items` items (ids, rows, values).
  Comparison(std::string title, int64_t items) : title_(std::move(title)), items_(items) {}

  // Ratios refer to the contender that is added first.
  void Add(std::string name, std::function<void()> run) {
    contenders_.push_back({std::move(name), std::move(run), {}});
  }

  // Runs a warm-up round and `rounds` measured rounds, and prints the table.
  void Run(int rounds) {
    for (int round = -1; round < rounds; ++round) {
      for (Contender& contender : contenders_) {
        const auto begin = std::chrono::steady_clock::now();
        contender.run();
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
        if (round >= 0) contender.ms.push_back(took.count());
      }
    }
    Print();
  }

 private:
  struct Contender {
    std::string name;
    std::function<void()> run;
    std::vector<double> ms;
  };

  void Print() {
    std::printf("\n%s\n  %-44s %10s %10s %12s %8s\n", title_.c_str(), "", "median ms", "min ms", "M items/s",
                "ratio");
    double first_median = 0;
    for (Contender& contender : contenders_) {
      std::sort(contender.ms.begin(), contender.ms.end());
      const double median = contender.ms[contender.ms.size() / 2];
      if (first_median == 0) first_median = median;
      std::printf("  %-44s %10.3f %10.3f %12.1f %8.2f\n", contender.name.c_str(), median,
                  contender.ms.front(), static_cast<double>(items_) / median / 1e3, first_median / median);
    }
  }

  std::string title_;
  int64_t items_;
  std::vector<Contender> contenders_;
};

}  // namespace sok

#endif  // SOK_BENCHMARKS_ENGINE_COMPARISON_H_
