// The layout of a row's record: its weights, the optimizer's slots, and what rounding needs.
#ifndef SOK_CC_TABLE_RECORD_LAYOUT_H_
#define SOK_CC_TABLE_RECORD_LAYOUT_H_

#include <cstdint>
#include <cstring>

#include "cc/base/float_types.h"
#include "cc/base/hash.h"
#include "cc/base/span.h"
#include "cc/optimizers/rule_info.h"

namespace sok {

// How a step rounds numbers that are kept in 16 bits. With kNearest, changes below half of the distance
// between two such numbers are lost, in each step anew: a second moment in bfloat16 with beta2 of 0.999 never
// falls. kStochastic keeps them on average.
enum class Rounding { kStochastic, kNearest };

// The types in which records keep numbers. Slots of one number a row are always float32.
struct RecordFormat {
  FloatType weights = FloatType::kFloat32;
  FloatType slots = FloatType::kFloat32;
  Rounding rounding = Rounding::kStochastic;
  uint64_t seed = 0;  // of stochastic rounding

  bool is_float32() const { return weights == FloatType::kFloat32 && slots == FloatType::kFloat32; }
};

// A record is [weights | slots as wide as a row | slots of one number | stream]. Each part begins at a
// multiple of its numbers' size. The stream is 32 bits, made of the row's key, of which stochastic rounding
// takes its random bits; other records have none. Optimizers work on the floats of a record: weights, then
// slots, in one array.
class RecordLayout {
 public:
  // Records of rows that no optimizer trains: `dim` >= 1 weights alone.
  RecordLayout(int64_t dim, const RecordFormat& format)
      : format_(format), weights_(dim), bytes_(Aligned(dim * BytesOf(format.weights), 4)) {}

  // Records of rows that an optimizer with these slots trains. Those of one number come last.
  RecordLayout(int64_t dim, const RecordFormat& format, Span<const SlotSpec> slots)
      : RecordLayout(dim, format) {
    for (const SlotSpec& slot : slots) (slot.one_per_row ? row_slots_ : wide_slots_) += slot.width;
    slots_at_ = Aligned(dim * BytesOf(format.weights), BytesOf(format.slots));
    row_slots_at_ = Aligned(slots_at_ + wide_slots_ * BytesOf(format.slots), 4);
    bytes_ = row_slots_at_ + row_slots_ * 4;
    has_stream_ = !format.is_float32() && format.rounding == Rounding::kStochastic;
    if (has_stream_) bytes_ += 4;
  }

  const RecordFormat& format() const { return format_; }
  // Whether a record is the array of its floats.
  bool is_plain() const { return format_.is_float32(); }
  int64_t bytes() const { return bytes_; }  // a multiple of 4
  int64_t weight_bytes() const { return weights_ * BytesOf(format_.weights); }
  int64_t floats() const { return weights_ + wide_slots_ + row_slots_; }
  // From the floats of one record to those of the next, where several are unpacked: whole cache lines.
  int64_t unpacked_stride() const { return Aligned(floats(), 16); }

  // The floats of a record, exactly; or its weights alone; or the floats of several records, at multiples of
  // unpacked_stride().
  void Read(const char* record, float* floats) const { Read(Span<const char* const>(&record, 1), floats); }
  void Read(Span<const char* const> records, float* floats) const;
  void ReadWeights(const char* record, float* weights) const;

  // Writes the floats, or the weights alone, rounded to nearest. The stream stays.
  void Write(const float* floats, char* record) const;
  void WriteWeights(const float* weights, char* record) const;

  // Writes the floats of several records, at multiples of unpacked_stride(), after step number `step` of
  // their table, rounded as the format says.
  void WriteStep(const float* floats, int64_t step, Span<char* const> records) const;

  // Writes the initial values of the slots.
  void FillSlots(Span<const SlotSpec> slots, char* record) const;

  // Writes the stream, if records have one.
  void SetKey(int64_t key, char* record) const {
    if (!has_stream_) return;
    const auto stream = static_cast<uint32_t>(Mix64(static_cast<uint64_t>(key) ^ format_.seed) >> 32);
    std::memcpy(record + bytes_ - 4, &stream, sizeof(stream));
  }

 private:
  static constexpr int64_t Aligned(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

  RecordFormat format_;
  int64_t weights_;
  int64_t wide_slots_ = 0;
  int64_t row_slots_ = 0;
  int64_t slots_at_ = 0;
  int64_t row_slots_at_ = 0;
  int64_t bytes_;
  bool has_stream_ = false;
};

}  // namespace sok

#endif  // SOK_CC_TABLE_RECORD_LAYOUT_H_
