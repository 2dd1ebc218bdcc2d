#include "cc/table/table_options.h"

#include <limits>
#include <sstream>

namespace sok {
namespace {

const char* NameOf(InitializerKind kind) {
  switch (kind) {
    case InitializerKind::kConstant:
      return "constant";
    case InitializerKind::kUniform:
      return "uniform";
    case InitializerKind::kNormal:
      return "normal";
    case InitializerKind::kTruncatedNormal:
      return "truncated_normal";
  }
  return "unknown";
}

}  // namespace

std::string Describe(const TableOptions& options) {
  std::ostringstream text;
  // As many digits as tell any two floats apart.
  text.precision(std::numeric_limits<float>::max_digits10);
  text << "'" << options.name << "' of dim " << options.dim << ", ";
  if (options.capacity > 0) {
    text << "capacity " << options.capacity;
  } else {
    text << "no bound";
  }
  text << ", " << (options.use_hashtable ? "hashed" : "direct") << " " << options.key_dtype
       << " keys, initial "
       << "values " << NameOf(options.initializer.kind) << "(" << options.initializer.a;
  if (options.initializer.kind != InitializerKind::kConstant) text << ", " << options.initializer.b;
  text << ") of seed " << options.initializer.seed;
  return text.str();
}

}  // namespace sok
