// Which schedules a test runs with: the arguments --seeds and --work of test_main.cc.
#ifndef SOK_CUDA_ON_HOST_TESTING_SEEDS_OF_TESTS_H_
#define SOK_CUDA_ON_HOST_TESTING_SEEDS_OF_TESTS_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>

namespace sok::on_host {

// Without a limit each test has the seeds 1 to `seeds`. With one it has these and 0, in order, as long as its
// runs together do no more work than the limit: at least one run. Its first seed depends on its name and the
// build's, so that tests with few runs have different ones.
class SeedsOfTests {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  SeedsOfTests(int seeds, int64_t work_limit, std::string build)
      : seeds_(static_cast<uint64_t>(seeds)), work_limit_(work_limit), build_(std::move(build)) {}

  // The seed of the next run, which `AddWork` ends.
  uint64_t Next(const std::string& test) {
    const uint64_t run = tests_[test].runs++;
    if (run == seeds_) return 0;
    return 1 + ((is_limited() ? HashOf(build_ + test) : 0) + run) % seeds_;
  }
  void AddWork(const std::string& test, int64_t work) { tests_[test].work += work; }

  // The tests that are to run again, with colons between them: a filter of GoogleTest. Empty if there are
  // none.
  std::string Left() const {
    std::string names;
    for (const auto& [name, test] : tests_) {
      if (test.runs < seeds_ + (is_limited() ? 1 : 0) && HasRoom(test)) {
        names += (names.empty() ? "" : ":") + name;
      }
    }
    return names;
  }
  int64_t num_tests() const { return static_cast<int64_t>(tests_.size()); }
  int64_t num_runs() const {
    uint64_t runs = 0;
    for (const auto& [name, test] : tests_) runs += test.runs;
    return static_cast<int64_t>(runs);
  }

 private:
  struct Test {
    uint64_t runs = 0;
    int64_t work = 0;
  };

  bool is_limited() const { return work_limit_ != kNoLimit; }
  // Whether another run like those before is within the limit.
  bool HasRoom(const Test& test) const {
    return test.work / static_cast<int64_t>(test.runs) <= work_limit_ - test.work;
  }
  // FNV-1a, which is the same on every machine.
  static uint64_t HashOf(const std::string& text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return hash >> 32;
  }

  const uint64_t seeds_;
  const int64_t work_limit_;
  const std::string build_;
  std::map<std::string, Test> tests_;
};

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_TESTING_SEEDS_OF_TESTS_H_
