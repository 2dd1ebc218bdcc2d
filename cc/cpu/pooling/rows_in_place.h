#ifndef SOK_CC_CPU_POOLING_ROWS_IN_PLACE_H_
#define SOK_CC_CPU_POOLING_ROWS_IN_PLACE_H_

#include <cstdint>
#include <vector>

#include "cc/base/float_types.h"
#include "cc/base/prefetch.h"
#include "cc/base/span.h"
#include "cc/cpu/pooling/vector_math.h"

namespace sok {

// Pointers to rows anywhere in memory, whose elements are all of one type.
class RowsInPlace {
 public:
  RowsInPlace() = default;                                           // no rows
  RowsInPlace(Span<const float* const> floats) : floats_(floats) {}  // NOLINT: implicit
  RowsInPlace(const std::vector<const float*>& floats)
      : RowsInPlace(Span<const float* const>(floats)) {}  // NOLINT
  // Elements of 16 bits, of the given type.
  RowsInPlace(Span<const uint16_t* const> halves, FloatType type) : halves_(halves), type_(type) {}

  FloatType type() const { return type_; }
  int64_t size() const { return type_ == FloatType::kFloat32 ? floats_.size() : halves_.size(); }

  // Calls body(elements, rows): `elements` is an object of the type of the elements (vector_math.h), and
  // rows[i] points to row i.
  template <typename Body>
  void Visit(const Body& body) const {
    switch (type_) {
      case FloatType::kFloat32:
        return body(Float32Elements(), floats_.data());
      case FloatType::kFloat16:
        return body(Float16Elements(), halves_.data());
      case FloatType::kBfloat16:
        return body(Bfloat16Elements(), halves_.data());
    }
  }

 private:
  Span<const float* const> floats_;
  Span<const uint16_t* const> halves_;
  FloatType type_ = FloatType::kFloat32;
};

// The pointers themselves: to floats, or to elements of 16 bits.
struct RowPointerList {
  FloatType type = FloatType::kFloat32;
  std::vector<const float*> floats;
  std::vector<const uint16_t*> halves;

  RowsInPlace rows() const {
    return type == FloatType::kFloat32 ? RowsInPlace(floats) : RowsInPlace(halves, type);
  }
};

// Prefetches a row of `dim` elements.
inline void PrefetchRow(const float* row, int64_t dim) { PrefetchFloats(row, dim); }
inline void PrefetchRow(const uint16_t* row, int64_t dim) {
  PrefetchFloats(reinterpret_cast<const float*>(row), (dim + 1) / 2);
}

}  // namespace sok

#endif  // SOK_CC_CPU_POOLING_ROWS_IN_PLACE_H_
