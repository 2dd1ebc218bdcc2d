#include "sok_ops/kernels/exchange_tensors.h"

#include <limits>

namespace sok {

namespace tf = ::tensorflow;

int64_t* OutgoingWords::operator()(Span<const int64_t> sizes) {
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  tf::Tensor* words = nullptr;
  tf::Tensor* splits = nullptr;
  if (total - sizes[rank_] > std::numeric_limits<int32_t>::max() ||
      !context_->allocate_output(0, tf::TensorShape({total}), &words).ok() ||
      !context_->allocate_output(1, tf::TensorShape({sizes.size()}), &splits).ok()) {
    return nullptr;
  }
  for (int64_t r = 0; r < sizes.size(); ++r) {
    splits->flat<int32_t>()(r) = r == rank_ ? 0 : static_cast<int32_t>(sizes[r]);
  }
  return words->flat<int64_t>().data();
}

tf::Status ReadInbox(tf::OpKernelContext* context, int first_input, int rank, Inbox* inbox) {
  const tf::Tensor& received = context->input(first_input);
  const tf::Tensor& received_splits = context->input(first_input + 1);
  const tf::Tensor& sent = context->input(first_input + 2);
  const tf::Tensor& sent_splits = context->input(first_input + 3);
  const Span<const int64_t> words(received.flat<int64_t>().data(), received.NumElements());
  const Span<const int64_t> own(sent.flat<int64_t>().data(), sent.NumElements());
  const int64_t ranks = received_splits.NumElements();
  bool fits = sent_splits.NumElements() == ranks && rank < ranks;
  int64_t position = 0;
  int64_t others = 0;
  inbox->clear();
  for (int64_t r = 0; fits && r < ranks; ++r) {
    const int64_t size = received_splits.flat<int32_t>()(r);
    const int64_t sent_size = sent_splits.flat<int32_t>()(r);
    fits = size >= 0 && size <= words.size() - position && sent_size >= 0 && sent_size <= own.size() - others;
    if (!fits) break;
    inbox->push_back(words.subspan(position, size));
    position += size;
    others += sent_size;
  }
  if (!fits || position != words.size()) {
    return tf::errors::InvalidArgument(context->op_kernel().name(), ": ", words.size(),
                                       " words arrived, which do not fit their splits");
  }
  (*inbox)[rank] = own.subspan(others, own.size() - others);
  return tf::Status();
}

}  // namespace sok
