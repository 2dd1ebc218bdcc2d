#ifndef SOK_CC_OPTIMIZERS_HYPER_PARAMETER_H_
#define SOK_CC_OPTIMIZERS_HYPER_PARAMETER_H_

namespace sok {

// Which values of a hyper-parameter make sense; all are finite.
enum class HyperRange {
  kFinite,       // any
  kNonNegative,  // >= 0
  kPositive,     // > 0
  kNonPositive,  // <= 0
  kUnit,         // [0, 1]
  kBelowOne,     // [0, 1)
};

// A hyper-parameter of an optimizer, as error messages name it.
struct HyperParameter {
  const char* name;
  HyperRange range;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_HYPER_PARAMETER_H_
