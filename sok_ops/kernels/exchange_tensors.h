// The tensors on both sides of an exchange between ranks: int64 words, and int32 splits that say how many of
// them are for, or from, each rank. A rank sends itself nothing: its message to itself stands behind those to
// others.
#ifndef SOK_SOK_OPS_KERNELS_EXCHANGE_TENSORS_H_
#define SOK_SOK_OPS_KERNELS_EXCHANGE_TENSORS_H_

#include <cstdint>

#include "cc/base/span.h"
#include "cc/sharded/message.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// An AllocateWords that makes the outputs 0 and 1 of a kernel on rank `rank`: words and splits.
class OutgoingWords {
 public:
  OutgoingWords(tensorflow::OpKernelContext* context, int rank) : context_(context), rank_(rank) {}

  int64_t* operator()(Span<const int64_t> sizes);

 private:
  tensorflow::OpKernelContext* context_;
  int rank_;
};

// Inputs of a kernel that takes what arrived: words and splits that arrived, words and splits that were sent.
constexpr int kInboxInputs = 4;

// The messages to rank `rank` in kInboxInputs inputs from `first_input` on. They live as long as the inputs.
tensorflow::Status ReadInbox(tensorflow::OpKernelContext* context, int first_input, int rank, Inbox* inbox);

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_EXCHANGE_TENSORS_H_
