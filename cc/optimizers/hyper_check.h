#ifndef SOK_CC_OPTIMIZERS_HYPER_CHECK_H_
#define SOK_CC_OPTIMIZERS_HYPER_CHECK_H_

#include <string>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/optimizers/hyper_parameter.h"

namespace sok {

// InvalidArgument, naming the optimizer, the hyper-parameter and the value, unless values[i] is finite and in
// the range of hyper[i]. Both have the same length.
Status CheckHyperRanges(const std::string& optimizer, Span<const HyperParameter> hyper,
                        Span<const float> values);

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_HYPER_CHECK_H_
