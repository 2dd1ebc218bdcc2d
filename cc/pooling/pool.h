#ifndef SOK_CC_POOLING_POOL_H_
#define SOK_CC_POOLING_POOL_H_

#include <cstdint>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/pooling/combiner.h"

namespace sok {

// The forward pass of one lookup, from rows where they lie to its output.
//
// `rows` are pointers to the rows of the distinct ids, `dim` floats each, anywhere in memory; occurrence i of
// the lookup reads rows[inverse[i]]. Outputs must not overlap rows. The caller has checked the arguments:
// inverse within rows, offsets not decreasing. Results are the same bits for every executor.

// Pools bags of occurrences: bag b holds occurrences [offsets[b], offsets[b + 1]), and row b of the output,
// at out + b * out_stride, becomes
//   sum over i of weights[i] * rows[inverse[i]][0..dim)
// divided as `combiner` says. Empty `weights` are all ones. An empty bag and a bag whose divisor is zero give
// zeros. `offsets` has one entry more than there are bags, or none at all. Writes dim floats per bag.
//
// Rounds as tf.nn.embedding_lookup_sparse does, so that outputs are the same bits. With weights, rows are
// added up one after the other and the sum is divided. Without, those that are more than whole eights (two to
// nine) are added up first, then the sum of each eight; up to nine rows the sum is multiplied by 1 / divisor,
// beyond it is divided. TensorFlow adds up 16 weighted rows and more in an order that depends on the machine.
void PoolForward(Executor& executor, Span<const float* const> rows, Span<const int32_t> inverse,
                 Span<const int64_t> offsets, Span<const float> weights, Combiner combiner, int64_t dim,
                 float* out, int64_t out_stride);

// Whether an output is written to the caches, where who reads it next finds it, or past them: to be chosen
// for outputs so large that they would not stay there, and would only drive out what does.
enum class OutputStores { kCached, kStreamed };

// Copies without pooling: rows[inverse[i]] to out + i * out_stride, for every occurrence i.
void GatherForward(Executor& executor, Span<const float* const> rows, Span<const int32_t> inverse,
                   int64_t dim, float* out, int64_t out_stride, OutputStores stores = OutputStores::kCached);

// The same, on the calling thread, where each occurrence has a pointer of its own. PoolRows: bags without
// weights, of consecutive occurrences, the first of which reads rows[0]: occurrence i rows[i - offsets[0]],
// and the first bag is written to `out`. CopyRows: rows[i] to out + i * out_stride.
void PoolRows(Span<const float* const> rows, Span<const int64_t> offsets, Combiner combiner, int64_t dim,
              float* out, int64_t out_stride);
void CopyRows(Span<const float* const> rows, int64_t dim, float* out, int64_t out_stride,
              OutputStores stores = OutputStores::kCached);

}  // namespace sok

#endif  // SOK_CC_POOLING_POOL_H_
