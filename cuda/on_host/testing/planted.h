// Mistakes that the engine must find.
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
  // Makes it. Returns whether the results are those of a program without the mistake.
  bool (*make)();
  Noticed plain, asan, tsan;
  // What the report of a plain build says, or "wrong results"; a regular expression.
  const char* report;
};

// For GoogleTest.
inline void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

const std::vector<Mistake>& PlantedMistakes();

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_TESTING_PLANTED_H_
