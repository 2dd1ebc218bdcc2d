// The formats of gradients in exchanges between ranks.
#ifndef SOK_CC_MESSAGES_GRADIENT_FORMAT_H_
#define SOK_CC_MESSAGES_GRADIENT_FORMAT_H_

#include <cstdint>

#include "cc/base/float_types.h"

namespace sok {

using GradientFormat = FloatType;

constexpr bool IsGradientFormat(int64_t value) { return value >= 0 && value <= 2; }

// Rounds to nearest, ties to even: IEEE binary16 (from 65520 on to infinity), or the upper half of a float.
// NaN stays NaN. `format` is one of the 16-bit formats.
void EncodeGradients(GradientFormat format, const float* values, int64_t count, uint16_t* out);

// Exact. Decodes float16 denormals even on threads that flush denormal floats to zero.
void DecodeGradients(GradientFormat format, const uint16_t* values, int64_t count, float* out);

}  // namespace sok

#endif  // SOK_CC_MESSAGES_GRADIENT_FORMAT_H_
