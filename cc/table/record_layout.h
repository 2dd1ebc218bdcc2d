// The layout of a row's record: its weights, the optimizer's slots, and what rounding needs.
#ifndef SOK_CC_TABLE_RECORD_LAYOUT_H_
#define SOK_CC_TABLE_RECORD_LAYOUT_H_

#include <cstdint>
#include <cstring>

#include "cc/base/float_types.h"
#include "cc/base/hash.h"
#include "cc/base/host_device.h"
#include "cc/base/span.h"
#include "cc/optimizers/rule_info.h"

namespace sok {

// A lookup's reference to a row for its backward pass: the row number in the low 40 bits, and in the 13 bits
// above them how often the row has been freed (modulo 2^13), its generation. If rows are never freed, a
// reference is the row number. The other bits are 0. In the gradient of a table in parts on several servers,
// which only a worker has, they are the number of the part.
constexpr int kRowNumberBits = 40;
constexpr int kGenerationBits = 13;
constexpr int kReferenceBits = kRowNumberBits + kGenerationBits;
constexpr int64_t kMaxRows = int64_t{1} << kRowNumberBits;
constexpr int64_t kMaxParts = int64_t{1} << (63 - kReferenceBits);
constexpr uint32_t kGenerationMask = (uint32_t{1} << kGenerationBits) - 1;

constexpr uint32_t NextGeneration(uint32_t generation) { return (generation + 1) & kGenerationMask; }
constexpr int64_t MakeRowReference(int64_t row, uint32_t generation) {
  return static_cast<int64_t>(generation) << kRowNumberBits | row;
}
// The reference must not be negative.
constexpr int64_t RowOf(int64_t reference) { return reference & (kMaxRows - 1); }

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

// Where the parts of a record are, in bytes, for host and device: of `dim` weights, and `floats` numbers in
// all but the stream.
struct RecordShape {
  uint8_t weights = 0;      // a FloatType
  uint8_t slots = 0;        // a FloatType, of the slots as wide as a row
  uint8_t row_slots = 0;    // the number of slots of one number
  bool has_stream = false;  // which follows them

  SOK_HOST_DEVICE FloatType weight_type() const { return static_cast<FloatType>(weights); }
  SOK_HOST_DEVICE FloatType slot_type() const { return static_cast<FloatType>(slots); }
  // Whether a record is the array of its floats.
  SOK_HOST_DEVICE bool is_plain() const { return weights == 0 && slots == 0; }

  SOK_HOST_DEVICE int64_t SlotsAt(int64_t dim) const {
    return Aligned(dim * BytesOf(weight_type()), BytesOf(slot_type()));
  }
  SOK_HOST_DEVICE int64_t RowSlotsAt(int64_t dim, int64_t floats) const {
    return Aligned(SlotsAt(dim) + (floats - dim - row_slots) * BytesOf(slot_type()), 4);
  }
  SOK_HOST_DEVICE int64_t StreamAt(int64_t dim, int64_t floats) const {
    return RowSlotsAt(dim, floats) + 4 * row_slots;
  }
  SOK_HOST_DEVICE int64_t Bytes(int64_t dim, int64_t floats) const {
    return StreamAt(dim, floats) + (has_stream ? 4 : 0);
  }

 private:
  static SOK_HOST_DEVICE int64_t Aligned(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }
};

// The stream of a key's record. `seed`: RecordFormat::seed.
SOK_HOST_DEVICE uint32_t RoundingStream(int64_t key, uint64_t seed) {
  return static_cast<uint32_t>(Mix64(static_cast<uint64_t>(key) ^ seed) >> 32);
}

// What the random bits of a record's floats in step number `step` of its row's table are made of: those of
// float c are RoundingNoise(base, c).
SOK_HOST_DEVICE uint32_t RoundingBase(uint32_t stream, int64_t step) {
  return static_cast<uint32_t>(Mix64((uint64_t{stream} << 32) + static_cast<uint32_t>(step)));
}

class RecordLayout {
 public:
  // Records of rows that no optimizer trains: `dim` >= 1 weights alone.
  RecordLayout(int64_t dim, const RecordFormat& format) : format_(format), weights_(dim), floats_(dim) {
    shape_.weights = static_cast<uint8_t>(format.weights);
    shape_.slots = static_cast<uint8_t>(format.slots);
    Place();
  }

  // Records of rows that an optimizer with these slots trains. Those of one number come last.
  RecordLayout(int64_t dim, const RecordFormat& format, Span<const SlotSpec> slots)
      : RecordLayout(dim, format) {
    for (const SlotSpec& slot : slots) {
      floats_ += slot.width;
      if (slot.one_per_row) ++shape_.row_slots;
    }
    shape_.has_stream = !format.is_float32() && format.rounding == Rounding::kStochastic;
    Place();
  }

  const RecordFormat& format() const { return format_; }
  const RecordShape& shape() const { return shape_; }
  // Whether a record is the array of its floats.
  bool is_plain() const { return shape_.is_plain(); }
  int64_t bytes() const { return bytes_; }  // a multiple of 4
  int64_t weight_bytes() const { return weights_ * BytesOf(format_.weights); }
  int64_t floats() const { return floats_; }
  // From the floats of one record to those of the next, where several are unpacked: whole cache lines.
  int64_t unpacked_stride() const { return (floats_ + 15) / 16 * 16; }

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
    if (!shape_.has_stream) return;
    const uint32_t stream = RoundingStream(key, format_.seed);
    std::memcpy(record + bytes_ - 4, &stream, sizeof(stream));
  }

 private:
  void Place() {
    slots_at_ = shape_.SlotsAt(weights_);
    row_slots_at_ = shape_.RowSlotsAt(weights_, floats_);
    bytes_ = shape_.Bytes(weights_, floats_);
  }
  int64_t wide_slots() const { return floats_ - weights_ - shape_.row_slots; }

  RecordFormat format_;
  RecordShape shape_;
  int64_t weights_;
  int64_t floats_;
  int64_t slots_at_ = 0;
  int64_t row_slots_at_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace sok

#endif  // SOK_CC_TABLE_RECORD_LAYOUT_H_
