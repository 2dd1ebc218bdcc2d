#ifndef SOK_CC_POOLING_COMBINER_H_
#define SOK_CC_POOLING_COMBINER_H_

namespace sok {

// How the rows of a bag are combined: their weighted sum, divided by
//   kSum    1
//   kMean   the sum of the weights
//   kSqrtN  the square root of the sum of the squares of the weights
// as tf.nn.embedding_lookup_sparse defines them. A divisor of zero gives zeros.
enum class Combiner { kSum, kMean, kSqrtN };

}  // namespace sok

#endif  // SOK_CC_POOLING_COMBINER_H_
