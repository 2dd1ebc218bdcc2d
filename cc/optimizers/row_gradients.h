#ifndef SOK_CC_OPTIMIZERS_ROW_GRADIENTS_H_
#define SOK_CC_OPTIMIZERS_ROW_GRADIENTS_H_

#include <cstdint>

#include "cc/base/span.h"

namespace sok {

// The gradients of the rows that a step trains, in the order of the rows. The step reads them block by block,
// each just before use. So a block can be summed on demand, while it stays in the cache, and the gradients of
// all rows need not be in memory at once.
class RowGradients {
 public:
  // The largest block, in floats, that is computed on demand. Gradients of longer rows must be in memory.
  static constexpr int64_t kBlockFloats = 4096;

  virtual ~RowGradients() = default;

  // The gradients of rows [begin, end), row-major. They are stored gradients, or computed into `scratch`,
  // which has room for kBlockFloats. Thread-safe for different rows.
  virtual const float* Block(int64_t begin, int64_t end, float* scratch) const = 0;

  // The costs of the gradients, if they differ between rows: rows [0, i) cost offsets()[i] - offsets()[0].
  // Otherwise empty.
  virtual Span<const int64_t> offsets() const { return {}; }
};

// Gradients in memory: that of row i is at grads + i * dim.
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
