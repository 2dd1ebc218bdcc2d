#include "cc/optimizers/hyper_check.h"

#include <cmath>

namespace sok {
namespace {

bool InRange(HyperRange range, float value) {
  switch (range) {
    case HyperRange::kFinite:
      return true;
    case HyperRange::kNonNegative:
      return value >= 0.0f;
    case HyperRange::kPositive:
      return value > 0.0f;
    case HyperRange::kNonPositive:
      return value <= 0.0f;
    case HyperRange::kUnit:
      return value >= 0.0f && value <= 1.0f;
    case HyperRange::kBelowOne:
      return value >= 0.0f && value < 1.0f;
  }
  return false;
}

const char* Describe(HyperRange range) {
  switch (range) {
    case HyperRange::kFinite:
      return "finite";
    case HyperRange::kNonNegative:
      return "finite and at least 0";
    case HyperRange::kPositive:
      return "finite and above 0";
    case HyperRange::kNonPositive:
      return "finite and at most 0";
    case HyperRange::kUnit:
      return "between 0 and 1";
    case HyperRange::kBelowOne:
      return "at least 0 and below 1";
  }
  return "";
}

}  // namespace

Status CheckHyperRanges(const std::string& optimizer, Span<const HyperParameter> hyper,
                        Span<const float> values) {
  for (int64_t i = 0; i < hyper.size(); ++i) {
    if (std::isfinite(values[i]) && InRange(hyper[i].range, values[i])) continue;
    return InvalidArgument("Optimizer '", optimizer, "': ", hyper[i].name, " must be ",
                           Describe(hyper[i].range), ", got ", values[i]);
  }
  return OkStatus();
}

}  // namespace sok
