// The formats of gradients in exchanges between ranks.
#ifndef SOK_CC_SHARDED_GRADIENT_FORMAT_H_
#define SOK_CC_SHARDED_GRADIENT_FORMAT_H_

#include <cstdint>

namespace sok {

enum class GradientFormat : int64_t { kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2 };

constexpr bool IsGradientFormat(int64_t value) { return value >= 0 && value <= 2; }
constexpr int64_t BytesOf(GradientFormat format) { return format == GradientFormat::kFloat32 ? 4 : 2; }

// Rounds to nearest, ties to even: IEEE binary16 (from 65520 on to infinity), or the upper half of a float.
// NaN stays NaN. `format` is one of the 16-bit formats.
void EncodeGradients(GradientFormat format, const float* values, int64_t count, uint16_t* out);

// Exact. Decodes float16 denormals even on threads that flush denormal floats to zero.
void DecodeGradients(GradientFormat format, const uint16_t* values, int64_t count, float* out);

}  // namespace sok

#endif  // SOK_CC_SHARDED_GRADIENT_FORMAT_H_
