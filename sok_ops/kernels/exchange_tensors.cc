#include "sok_ops/kernels/exchange_tensors.h"

#include <limits>

#include "sok_ops/kernels/tf_versions.h"

namespace sok {

namespace tf = ::tensorflow;

int64_t* OutgoingWords::operator()(Span<const int64_t> sizes) {
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  tf::Tensor* words = nullptr;
  tf::Tensor* splits = nullptr;
  if (total - (own_ == kNoRank ? 0 : sizes[own_]) > std::numeric_limits<int32_t>::max() ||
      !context_->allocate_output(0, tf::TensorShape({total}), &words).ok() ||
      !context_->allocate_output(1, tf::TensorShape({sizes.size()}), &splits).ok()) {
    return nullptr;
  }
  for (int64_t r = 0; r < sizes.size(); ++r) {
    splits->flat<int32_t>()(r) = r == own_ ? 0 : static_cast<int32_t>(sizes[r]);
  }
  return words->flat<int64_t>().data();
}

namespace {

Span<const int64_t> WordsOf(const tf::Tensor& tensor) {
  return {tensor.flat<int64_t>().data(), tensor.NumElements()};
}

tf::Status DoNotFit(tf::OpKernelContext* context, int64_t words) {
  return tf::errors::InvalidArgument(context->op_kernel().name(), ": ", words,
                                     " words arrived, which do not fit their splits");
}

// Splits the words that arrived from all ranks, and those that this rank has sent.
tf::Status SplitWords(tf::OpKernelContext* context, const tf::Tensor& received, const tf::Tensor& splits,
                      const tf::Tensor& sent, const tf::Tensor& sent_splits, int rank, Inbox* inbox) {
  const Span<const int64_t> words = WordsOf(received);
  const Span<const int64_t> own = WordsOf(sent);
  const int64_t ranks = splits.NumElements();
  bool fits = sent_splits.NumElements() == ranks && 0 <= rank && rank < ranks;
  int64_t position = 0;
  int64_t others = 0;
  *inbox = Inbox(rank);
  for (int64_t r = 0; fits && r < ranks; ++r) {
    const int64_t size = splits.flat<int32_t>()(r);
    const int64_t sent_size = sent_splits.flat<int32_t>()(r);
    fits = size >= 0 && size <= words.size() - position && sent_size >= 0 && sent_size <= own.size() - others;
    if (!fits) break;
    inbox->Add(words.subspan(position, size));
    position += size;
    others += sent_size;
  }
  if (!fits || position != words.size()) return DoNotFit(context, words.size());
  inbox->Set(rank, own.subspan(others, own.size() - others));
  return tf::Status();
}

}  // namespace

tf::Status ReadInbox(tf::OpKernelContext* context, int rank, Inbox* inbox) {
  tf::OpInputList received;
  const tf::Tensor* splits = nullptr;
  const tf::Tensor* sent = nullptr;
  const tf::Tensor* sent_splits = nullptr;
  TF_RETURN_IF_ERROR(context->input_list("received", &received));
  TF_RETURN_IF_ERROR(context->input("received_splits", &splits));
  TF_RETURN_IF_ERROR(context->input("sent", &sent));
  TF_RETURN_IF_ERROR(context->input("sent_splits", &sent_splits));
  if (splits->NumElements() > 0 && received.size() == 1) {
    return SplitWords(context, received[0], *splits, *sent, *sent_splits, rank, inbox);
  }
  if (splits->NumElements() + sent->NumElements() + sent_splits->NumElements() > 0) {
    return DoNotFit(context, received[0].NumElements());
  }
  *inbox = Inbox(kNoRank);
  for (int m = 0; m < received.size(); ++m) inbox->Add(WordsOf(received[m]));
  return tf::Status();
}

tf::Status ReadAnsweringTables(tf::OpKernelContext* context, const std::vector<int64_t>& dims,
                               GroupTables* tables) {
  const tf::Status status = ReadTables(context, dims, tables);
  if (!tf::errors::IsFailedPrecondition(status)) return status;
  const tf::Tensor* splits = nullptr;
  TF_RETURN_IF_ERROR(context->input("received_splits", &splits));
  if (splits->NumElements() > 0) return status;
  return tf::errors::Aborted(MessageOf(status), ", or wait until the chief has restored it");
}

}  // namespace sok
