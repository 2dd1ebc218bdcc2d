// The inputs and outputs of an exchange between ranks: int64 words, and int32 splits, the number of words to
// or from each rank. The message of a rank to itself is not exchanged: its split is 0, and it follows the
// messages to the other ranks in the words that the rank sends.
#ifndef SOK_SOK_OPS_KERNELS_EXCHANGE_TENSORS_H_
#define SOK_SOK_OPS_KERNELS_EXCHANGE_TENSORS_H_

#include <cstdint>

#include "cc/base/span.h"
#include "cc/messages/message.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// An AllocateWords that allocates outputs 0 and 1 of a kernel on rank `rank`: words and splits. Fails also if
// the words to the other ranks are more than INT32_MAX, the limit of an exchange.
class OutgoingWords {
 public:
  OutgoingWords(tensorflow::OpKernelContext* context, int rank) : context_(context), rank_(rank) {}

  int64_t* operator()(Span<const int64_t> sizes);

 private:
  tensorflow::OpKernelContext* context_;
  int rank_;
};

// The number of inputs that hold an inbox: received words and splits, then this rank's sent words and splits.
constexpr int kInboxInputs = 4;

// Reads the messages to rank `rank` from the kInboxInputs inputs that begin with `first_input`. They are
// valid as long as the inputs.
tensorflow::Status ReadInbox(tensorflow::OpKernelContext* context, int first_input, int rank, Inbox* inbox);

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_EXCHANGE_TENSORS_H_
