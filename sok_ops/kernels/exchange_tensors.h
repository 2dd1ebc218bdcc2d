// The tensors on both sides of an exchange between ranks: int64 words, and int32 splits that say how many of
// them are for, or from, each rank.
#ifndef SOK_SOK_OPS_KERNELS_EXCHANGE_TENSORS_H_
#define SOK_SOK_OPS_KERNELS_EXCHANGE_TENSORS_H_

#include <cstdint>
#include <limits>

#include "cc/base/span.h"
#include "cc/sharded/message.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// An AllocateWords that makes the outputs 0 and 1 of a kernel, words and splits.
class OutgoingWords {
 public:
  explicit OutgoingWords(tensorflow::OpKernelContext* context) : context_(context) {}

  int64_t* operator()(Span<const int64_t> sizes) {
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    tensorflow::Tensor* words = nullptr;
    tensorflow::Tensor* splits = nullptr;
    if (total > std::numeric_limits<int32_t>::max() ||
        !context_->allocate_output(0, tensorflow::TensorShape({total}), &words).ok() ||
        !context_->allocate_output(1, tensorflow::TensorShape({sizes.size()}), &splits).ok()) {
      return nullptr;
    }
    for (int64_t r = 0; r < sizes.size(); ++r) splits->flat<int32_t>()(r) = static_cast<int32_t>(sizes[r]);
    return words->flat<int64_t>().data();
  }

 private:
  tensorflow::OpKernelContext* context_;
};

// The messages in the inputs `first_input`, words, and the next, splits. They live as long as the inputs.
inline tensorflow::Status ReadInbox(tensorflow::OpKernelContext* context, int first_input, Inbox* inbox) {
  const tensorflow::Tensor& words = context->input(first_input);
  const tensorflow::Tensor& splits = context->input(first_input + 1);
  inbox->words = words.flat<int64_t>().data();
  inbox->begin.assign(1, 0);
  for (int64_t r = 0; r < splits.NumElements(); ++r) {
    inbox->begin.push_back(inbox->begin.back() + splits.flat<int32_t>()(r));
    if (splits.flat<int32_t>()(r) < 0) inbox->begin.back() = -1;
    if (inbox->begin.back() < 0) break;
  }
  if (inbox->begin.back() == words.NumElements()) return tensorflow::Status();
  return tensorflow::errors::InvalidArgument(context->op_kernel().name(), ": ", words.NumElements(),
                                             " words arrived, which their splits contradict");
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_EXCHANGE_TENSORS_H_
