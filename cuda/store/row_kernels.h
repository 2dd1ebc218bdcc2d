// Rows in kernels: the threads that share one, and its initial contents. Only .cu files include this header.
#ifndef SOK_CUDA_STORE_ROW_KERNELS_H_
#define SOK_CUDA_STORE_ROW_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/initializers/initializer.h"
#include "cuda/base/floats.h"
#include "cuda/base/launch.h"
#include "cuda/store/record_numbers.h"
#include "cuda/store/row_store_view.h"

namespace sok {

// 2^bits adjacent threads of the grid, at most a warp (LanesLog2 of cuda/base/part_launch.h), work on a row
// together, and take its columns in turn.
class Lanes {
 public:
  explicit __device__ Lanes(int bits) : bits_(bits) {}

  // The rows of this thread.
  __device__ int64_t first() const { return ThreadOfGrid() >> bits_; }
  __device__ int64_t step() const { return ThreadsOfGrid() >> bits_; }
  // This thread's number among those of the row, which is also its first column.
  __device__ int lane() const { return static_cast<int>(threadIdx.x) & (count() - 1); }
  __device__ int count() const { return 1 << bits_; }

 private:
  int bits_;
};

// From what a new row's contents are computed, the same for all lanes that write them.
struct RowStart {
  char* record = nullptr;
  const float* given = nullptr;  // the given row, if the initializer has some
  uint64_t state = 0;            // otherwise, of the random numbers
};

__device__ __forceinline__ RowStart StartOf(const RowStoreView& store, const Initializer& initializer,
                                            int64_t key, int64_t row) {
  if (initializer.kind == InitializerKind::kGiven) {
    return {store.Record(row), GivenRow(initializer, store.dim, key), 0};
  }
  return {store.Record(row), nullptr, InitialRowState(initializer, key)};
}

// Float `c` of a new record; 0 in its padding.
__device__ __forceinline__ float StartValue(const RowStoreView& store, const Initializer& initializer,
                                            const RowStart& start, int64_t c) {
  if (c >= store.dim) return c < store.width ? store.fills[c - store.dim] : 0.0f;
  return start.given == nullptr ? ValueFromBits(initializer, ColumnBits(start.state, c)) : start.given[c];
}
// Inlined, the rarer distributions would take too many registers.
__device__ __attribute__((noinline)) inline float RareStartValue(const RowStoreView& store,
                                                                 const Initializer& initializer,
                                                                 const RowStart& start, int64_t c) {
  return StartValue(store, initializer, start, c);
}

// WriteStart of a record that has numbers in 16 bits. Not inlined, so that records of floats need no
// registers for it.
__device__ __attribute__((noinline)) inline void WriteRoundedStart(const RowStoreView& store,
                                                                   const Initializer& initializer,
                                                                   char* record, const float* given,
                                                                   uint64_t state, int lane, int lanes) {
  for (int64_t c = lane; c < store.width; c += lanes) {
    WriteNumber(store, record, c, StartValue(store, initializer, {record, given, state}, c));
  }
}

// Writes all of a record of floats by `lanes` lanes, of which this is number `lane`: four floats at a time,
// which may include padding.
__device__ __forceinline__ void WriteStart(const RowStoreView& store, const Initializer& initializer,
                                           const RowStart& start, int lane, int lanes) {
  // The usual distribution is computed here. As its kind is a constant, the others need no registers.
  const Initializer uniform(InitializerKind::kUniform, initializer.a, initializer.b, 0);
  const int64_t uniforms = initializer.kind == InitializerKind::kUniform ? store.dim : 0;
  for (int64_t c = int64_t{4} * lane; c < store.width; c += int64_t{4} * lanes) {
    Floats<4> values;
    if (c + 4 <= uniforms) {
      for (int k = 0; k < 4; ++k) values.v[k] = ValueFromBits(uniform, ColumnBits(start.state, c + k));
    } else {
      for (int k = 0; k < 4; ++k) values.v[k] = RareStartValue(store, initializer, start, c + k);
    }
    StoreFloats(values, reinterpret_cast<float*>(start.record) + c);
  }
}

}  // namespace sok

#endif  // SOK_CUDA_STORE_ROW_KERNELS_H_
