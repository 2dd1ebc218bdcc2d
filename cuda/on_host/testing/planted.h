// Deliberate mistakes that the engine must find.
#ifndef SOK_CUDA_ON_HOST_TESTING_PLANTED_H_
#define SOK_CUDA_ON_HOST_TESTING_PLANTED_H_

#include <ostream>
#include <vector>

namespace sok::on_host {

// How a build notices a mistake.
enum class Noticed {
  kAlways,   // in the first schedule
  kSomehow,  // in one of the schedules that planted_test tries
  kNever,    // in none of them
};

struct Mistake {
  const char* name;
  // Makes the mistake. Returns whether the results equal those of a program without it.
  bool (*make)();
  Noticed plain, asan, tsan;
  // The report of a plain build, or "wrong results"; a regular expression.
  const char* report;
};

// For GoogleTest's output.
inline void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

const std::vector<Mistake>& PlantedMistakes();

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_TESTING_PLANTED_H_
