// For each second, the distance between two of this machine's cores and the speed-up by the second one. Takes
// the number of seconds, by default 60.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "benchmarks/engine/two_cores.h"

namespace sok {
namespace {

constexpr int64_t kHandOvers = 20'000;
constexpr int64_t kPasses = 400'000;

template <typename Function>
double Seconds(const Function& function) {
  const auto begin = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double NanosecondsOneWay() {
  return Seconds([] { HandOver(kHandOvers); }) * 1e9 / (2 * kHandOvers);
}

// The work of two threads divided by the work of one in the same time.
double WorthOfTwo() {
  const double alone = Seconds([] { KeepBusy(kPasses); });
  const double together = Seconds([] {
    std::thread other([] { KeepBusy(kPasses); });
    KeepBusy(kPasses);
    other.join();
  });
  return 2 * alone / together;
}

void PrintShares(const char* what, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  };
  std::printf("%-32s %8.2f %8.2f %8.2f %8.2f %8.2f\n", what, at(0), at(0.1), at(0.5), at(0.9), at(1));
}

void Measure(int seconds) {
  std::vector<double> one_way;
  std::vector<double> worth;
  for (int second = 0; second < seconds; ++second) {
    one_way.push_back(NanosecondsOneWay());
    worth.push_back(WorthOfTwo());
    std::printf("%4d  %6.0f ns  %5.2f\n", second, one_way.back(), worth.back());
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
  }
  std::printf("%-32s %8s %8s %8s %8s %8s\n", "", "least", "10 %", "median", "90 %", "most");
  PrintShares("a line to the other core, ns", one_way);
  PrintShares("work of two threads / of one", worth);
}

}  // namespace
}  // namespace sok

int main(int argc, char** argv) {
  const int seconds = argc > 1 ? std::atoi(argv[1]) : 60;
  if (argc > 2 || seconds < 1) {
    std::fprintf(stderr, "usage: two_cores_benchmark [seconds]\n");
    return 2;
  }
  if (std::thread::hardware_concurrency() < 2) {
    std::fprintf(stderr, "This machine has only one core.\n");
    return 1;
  }
  sok::Measure(seconds);
  return 0;
}
