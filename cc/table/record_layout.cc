#include "cc/table/record_layout.h"

#include <algorithm>

#include "cc/base/vectorize.h"

namespace sok {
namespace {

void Decode(FloatType type, const char* from, int64_t count, float* to) {
  if (type == FloatType::kFloat32) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  const auto* const narrow = reinterpret_cast<const uint16_t*>(from);
  if (type == FloatType::kFloat16) {
    for (int64_t i = 0; i < count; ++i) to[i] = FromFloat16(narrow[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = FromBfloat16(narrow[i]);
  }
}

// to_float16(value, i) and to_bfloat16(value, i) round number i.
template <typename ToHalf, typename ToBrain>
void Encode(FloatType type, const float* from, int64_t count, char* to, const ToHalf& to_float16,
            const ToBrain& to_bfloat16) {
  if (type == FloatType::kFloat32) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  auto* const narrow = reinterpret_cast<uint16_t*>(to);
  if (type == FloatType::kFloat16) {
    for (int64_t i = 0; i < count; ++i) narrow[i] = to_float16(from[i], static_cast<uint32_t>(i));
  } else {
    for (int64_t i = 0; i < count; ++i) narrow[i] = to_bfloat16(from[i], static_cast<uint32_t>(i));
  }
}

void EncodeNearest(FloatType type, const float* from, int64_t count, char* to) {
  Encode(
      type, from, count, to, [](float value, uint32_t /*i*/) { return ToFloat16(value); },
      [](float value, uint32_t /*i*/) { return ToBfloat16(value); });
}

// With the random bits of `base`, of which these are the elements from number `first` on.
void EncodeRandomly(FloatType type, const float* from, int64_t count, uint32_t base, uint32_t first,
                    char* to) {
  Encode(
      type, from, count, to,
      [=](float value, uint32_t i) { return ToFloat16(value, RoundingNoise(base, first + i)); },
      [=](float value, uint32_t i) { return ToBfloat16(value, RoundingNoise(base, first + i)); });
}

}  // namespace

void RecordLayout::Read(const char* record, float* floats) const {
  RunVectorized([&] {
    Decode(format_.weights, record, weights_, floats);
    Decode(format_.slots, record + slots_at_, wide_slots_, floats + weights_);
    std::memcpy(floats + weights_ + wide_slots_, record + row_slots_at_, row_slots_ * sizeof(float));
  });
}

void RecordLayout::ReadWeights(const char* record, float* weights) const {
  RunVectorized([&] { Decode(format_.weights, record, weights_, weights); });
}

void RecordLayout::Write(const float* floats, char* record) const {
  RunVectorized([&] {
    EncodeNearest(format_.weights, floats, weights_, record);
    EncodeNearest(format_.slots, floats + weights_, wide_slots_, record + slots_at_);
    std::memcpy(record + row_slots_at_, floats + weights_ + wide_slots_, row_slots_ * sizeof(float));
  });
}

void RecordLayout::WriteWeights(const float* weights, char* record) const {
  RunVectorized([&] { EncodeNearest(format_.weights, weights, weights_, record); });
}

void RecordLayout::WriteStep(const float* floats, int64_t step, char* record) const {
  if (!has_stream_) return Write(floats, record);
  uint32_t stream;
  std::memcpy(&stream, record + bytes_ - 4, sizeof(stream));
  const auto base = static_cast<uint32_t>(Mix64((uint64_t{stream} << 32) + static_cast<uint32_t>(step)));
  RunVectorized([&] {
    EncodeRandomly(format_.weights, floats, weights_, base, 0, record);
    EncodeRandomly(format_.slots, floats + weights_, wide_slots_, base, static_cast<uint32_t>(weights_),
                   record + slots_at_);
    std::memcpy(record + row_slots_at_, floats + weights_ + wide_slots_, row_slots_ * sizeof(float));
  });
}

void RecordLayout::FillSlots(Span<const SlotSpec> slots, char* record) const {
  char* to_wide = record + slots_at_;
  char* to_row_slot = record + row_slots_at_;
  for (const SlotSpec& slot : slots) {
    char*& to = slot.one_per_row ? to_row_slot : to_wide;
    const FloatType type = slot.one_per_row ? FloatType::kFloat32 : format_.slots;
    if (type == FloatType::kFloat32) {
      std::fill_n(reinterpret_cast<float*>(to), slot.width, slot.fill);
    } else {
      uint16_t narrow;
      EncodeNearest(type, &slot.fill, 1, reinterpret_cast<char*>(&narrow));
      std::fill_n(reinterpret_cast<uint16_t*>(to), slot.width, narrow);
    }
    to += slot.width * BytesOf(type);
  }
}

}  // namespace sok
