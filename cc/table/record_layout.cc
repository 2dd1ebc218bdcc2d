#include "cc/table/record_layout.h"

#include <algorithm>

#include "cc/base/vectorize.h"

namespace sok {
namespace {

template <typename Columns>
void Decode(FloatType type, const char* from, Columns count, float* __restrict to) {
  const auto* __restrict const narrow = reinterpret_cast<const uint16_t*>(from);
  switch (type) {
    case FloatType::kFloat32:
      std::memcpy(to, from, count * sizeof(float));
      return;
    case FloatType::kFloat16:
      for (int64_t i = 0; i < count; ++i) to[i] = FromFloat16(narrow[i]);
      return;
    case FloatType::kBfloat16:
      for (int64_t i = 0; i < count; ++i) to[i] = FromBfloat16(narrow[i]);
      return;
  }
}

template <typename Columns>
void EncodeNearest(FloatType type, const float* __restrict from, Columns count, char* to) {
  auto* __restrict const narrow = reinterpret_cast<uint16_t*>(to);
  switch (type) {
    case FloatType::kFloat32:
      std::memcpy(to, from, count * sizeof(float));
      return;
    case FloatType::kFloat16:
      for (int64_t i = 0; i < count; ++i) narrow[i] = ToFloat16(from[i]);
      return;
    case FloatType::kBfloat16:
      for (int64_t i = 0; i < count; ++i) narrow[i] = ToBfloat16(from[i]);
      return;
  }
}

// With the random bits of `base`, of which these are the elements from number `first` on. At most
// kNoiseAtOnce elements of 16 bits.
constexpr int64_t kNoiseAtOnce = 128;
template <typename Columns>
void EncodePiece(FloatType type, const float* __restrict from, Columns count, uint32_t base, int64_t first,
                 char* to) {
  // The hashes of pairs, one after the other, are the bits of the elements: the lower half comes first.
  alignas(64) uint16_t noise[kNoiseAtOnce + 2];
  for (int64_t pair = 0; pair < (count + 2) / 2; ++pair) {
    const uint32_t bits = RoundingNoiseOfPair(base, static_cast<uint32_t>(first / 2 + pair));
    std::memcpy(noise + 2 * pair, &bits, sizeof(bits));
  }
  const uint16_t* __restrict const bits = noise + first % 2;
  auto* __restrict const narrow = reinterpret_cast<uint16_t*>(to);
  if (type == FloatType::kFloat16) {
    for (int64_t i = 0; i < count; ++i) narrow[i] = ToFloat16(from[i], bits[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) narrow[i] = ToBfloat16(from[i], bits[i]);
  }
}

template <typename Columns>
void EncodeRandomly(FloatType type, const float* from, Columns count, uint32_t base, int64_t first,
                    char* to) {
  if (type == FloatType::kFloat32) return EncodeNearest(type, from, count, to);
  if (count <= kNoiseAtOnce) return EncodePiece(type, from, count, base, first, to);
  for (int64_t i = 0; i < count; i += kNoiseAtOnce) {
    EncodePiece(type, from + i, std::min<int64_t>(kNoiseAtOnce, count - i), base, first + i, to + 2 * i);
  }
}

// Most rules have one such slot.
void CopySlots(const char* from, int64_t slots, char* to) {
  if (slots == 1) {
    std::memcpy(to, from, sizeof(float));
  } else {
    std::memcpy(to, from, slots * sizeof(float));
  }
}

char* Bytes(float* floats) { return reinterpret_cast<char*>(floats); }
const char* Bytes(const float* floats) { return reinterpret_cast<const char*>(floats); }

}  // namespace

// Loops over the weights, and those over the wide slots, are compiled for the usual numbers of them.

void RecordLayout::Read(Span<const char* const> records, float* floats) const {
  RunVectorized([&] {
    WithColumns(weights_, [&](auto weights) {
      for (int64_t r = 0; r < records.size(); ++r) {
        Decode(format_.weights, records[r], weights, floats + r * unpacked_stride());
      }
    });
    WithColumns(wide_slots(), [&](auto wide_slots) {
      for (int64_t r = 0; r < records.size(); ++r) {
        float* const to = floats + r * unpacked_stride() + weights_;
        Decode(format_.slots, records[r] + slots_at_, wide_slots, to);
        CopySlots(records[r] + row_slots_at_, shape_.row_slots, Bytes(to + wide_slots));
      }
    });
  });
}

void RecordLayout::ReadWeights(const char* record, float* weights) const {
  RunVectorized([&] { Decode(format_.weights, record, weights_, weights); });
}

void RecordLayout::Write(const float* floats, char* record) const {
  RunVectorized([&] {
    EncodeNearest(format_.weights, floats, weights_, record);
    EncodeNearest(format_.slots, floats + weights_, wide_slots(), record + slots_at_);
    CopySlots(Bytes(floats + weights_ + wide_slots()), shape_.row_slots, record + row_slots_at_);
  });
}

void RecordLayout::WriteWeights(const float* weights, char* record) const {
  RunVectorized([&] { EncodeNearest(format_.weights, weights, weights_, record); });
}

void RecordLayout::WriteStep(const float* floats, int64_t step, Span<char* const> records) const {
  if (!shape_.has_stream) {
    for (int64_t r = 0; r < records.size(); ++r) Write(floats + r * unpacked_stride(), records[r]);
    return;
  }
  const auto base = [&](int64_t r) {
    uint32_t stream;
    std::memcpy(&stream, records[r] + bytes_ - 4, sizeof(stream));
    return RoundingBase(stream, step);
  };
  RunVectorized([&] {
    WithColumns(weights_, [&](auto weights) {
      for (int64_t r = 0; r < records.size(); ++r) {
        EncodeRandomly(format_.weights, floats + r * unpacked_stride(), weights, base(r), 0, records[r]);
      }
    });
    WithColumns(wide_slots(), [&](auto wide_slots) {
      for (int64_t r = 0; r < records.size(); ++r) {
        const float* const from = floats + r * unpacked_stride() + weights_;
        EncodeRandomly(format_.slots, from, wide_slots, base(r), weights_, records[r] + slots_at_);
        CopySlots(Bytes(from + wide_slots), shape_.row_slots, records[r] + row_slots_at_);
      }
    });
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
      uint16_t narrow = 0;
      EncodeNearest(type, &slot.fill, 1, reinterpret_cast<char*>(&narrow));
      std::fill_n(reinterpret_cast<uint16_t*>(to), slot.width, narrow);
    }
    to += slot.width * BytesOf(type);
  }
}

}  // namespace sok
