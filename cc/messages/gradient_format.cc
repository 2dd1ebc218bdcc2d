#include "cc/messages/gradient_format.h"

#include "cc/base/vectorize.h"

namespace sok {
namespace {

template <uint16_t (*Convert)(float)>
void EncodeAll(const float* values, int64_t count, uint16_t* out) {
  RunVectorized([&] {
    for (int64_t i = 0; i < count; ++i) out[i] = Convert(values[i]);
  });
}

template <float (*Convert)(uint16_t)>
void DecodeAll(const uint16_t* values, int64_t count, float* out) {
  RunVectorized([&] {
    for (int64_t i = 0; i < count; ++i) out[i] = Convert(values[i]);
  });
}

}  // namespace

void EncodeGradients(GradientFormat format, const float* values, int64_t count, uint16_t* out) {
  format == GradientFormat::kFloat16 ? EncodeAll<ToFloat16>(values, count, out)
                                     : EncodeAll<ToBfloat16>(values, count, out);
}

void DecodeGradients(GradientFormat format, const uint16_t* values, int64_t count, float* out) {
  format == GradientFormat::kFloat16 ? DecodeAll<FromFloat16>(values, count, out)
                                     : DecodeAll<FromBfloat16>(values, count, out);
}

}  // namespace sok
