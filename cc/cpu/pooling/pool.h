#ifndef SOK_CC_CPU_POOLING_POOL_H_
#define SOK_CC_CPU_POOLING_POOL_H_

#include <cstdint>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/cpu/pooling/rows_in_place.h"
#include "cc/lookup/lookup_input.h"

namespace sok {

// The forward pass of one lookup: from rows in place to its output.
//
// `rows` points to the rows of the distinct ids, `dim` elements each, anywhere in memory; occurrence i of the
// lookup reads rows[inverse[i]]. Sums are in float32, whatever the type of the elements. Outputs must not
// overlap rows. The caller has checked the arguments: inverse within rows, offsets not decreasing. Results
// are the same bits for every executor.

// Pools bags of occurrences: bag b holds occurrences [offsets[b], offsets[b + 1]), and row b of the output,
// at out + b * out_stride, becomes
//   sum over i of weights[i] * rows[inverse[i]][0..dim)
// divided as `combiner` says. Empty `weights` mean ones. An empty bag and a bag whose divisor is zero give
// zeros. `offsets` has one entry more than there are bags, or is empty. Writes dim floats per bag.
//
// Rounds as tf.nn.embedding_lookup_sparse does, so that outputs are the same bits. With weights, rows are
// added one after the other and the sum is divided. Without weights, the first rows (two to nine, so that a
// multiple of eight remains) are added first, then the sum of each following eight; for up to nine rows the
// sum is multiplied by 1 / divisor, for more it is divided. TensorFlow adds 16 or more weighted rows in an
// order that depends on the machine.
void PoolForward(Executor& executor, const RowsInPlace& rows, Span<const int32_t> inverse,
                 Span<const int64_t> offsets, Span<const float> weights, Combiner combiner, int64_t dim,
                 float* out, int64_t out_stride);

// Whether an output is written through the caches, where its reader finds it, or past them. The second is for
// outputs so large that they would not stay in the caches and would only evict other data.
enum class OutputStores { kCached, kStreamed };

// Copies rows without pooling: rows[inverse[i]] to out + i * out_stride, for every occurrence i.
void GatherForward(Executor& executor, const RowsInPlace& rows, Span<const int32_t> inverse, int64_t dim,
                   float* out, int64_t out_stride, OutputStores stores = OutputStores::kCached);

// The same rows, as they are stored and without gaps, to `out`, which holds them in units of a float.
void GatherAsStored(Executor& executor, const RowsInPlace& rows, Span<const int32_t> inverse, int64_t dim,
                    float* out);

// GatherForward and PoolForward on the calling thread, with one pointer for each occurrence. PoolRows:
// unweighted bags; occurrence i reads rows[i - offsets[0]], and the first bag is written to `out`. CopyRows:
// rows[i] to out + i * out_stride.
void PoolRows(const RowsInPlace& rows, Span<const int64_t> offsets, Combiner combiner, int64_t dim,
              float* out, int64_t out_stride);
void CopyRows(const RowsInPlace& rows, int64_t dim, float* out, int64_t out_stride,
              OutputStores stores = OutputStores::kCached);

}  // namespace sok

#endif  // SOK_CC_CPU_POOLING_POOL_H_
