#ifndef SOK_CC_OPTIMIZERS_ROW_GRADIENTS_H_
#define SOK_CC_OPTIMIZERS_ROW_GRADIENTS_H_

#include <cstdint>

#include "cc/base/span.h"

namespace sok {

// The gradients of the rows that a step trains, in the order of the rows. The step asks for them block by
// block, just before it needs them, so that they need not lie in memory: a block may be summed up when asked
// for, and is then still in the cache.
class RowGradients {
 public:
  // Floats that a block which is made when asked for holds at most. Gradients of longer rows have to lie in
  // memory.
  static constexpr int64_t kBlockFloats = 4096;

  virtual ~RowGradients() = default;

  // The gradients of rows [begin, end), row-major: where they lie, or in `scratch`, which has room for
  // kBlockFloats. Threads may ask at the same time, for different rows.
  virtual const float* Block(int64_t begin, int64_t end, float* scratch) const = 0;

  // Where rows differ in what their gradients cost: rows [0, i) cost offsets()[i] - offsets()[0]. Else empty.
  virtual Span<const int64_t> offsets() const { return {}; }
};

// Gradients that lie in memory: row i's at grads + i * dim.
class StoredRowGradients final : public RowGradients {
 public:
  StoredRowGradients(const float* grads, int64_t dim) : grads_(grads), dim_(dim) {}
  const float* Block(int64_t begin, int64_t /*end*/, float* /*scratch*/) const override {
    return grads_ + begin * dim_;
  }

 private:
  const float* grads_;
  int64_t dim_;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ROW_GRADIENTS_H_
