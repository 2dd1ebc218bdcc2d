// The inputs and outputs of an exchange between ranks: int64 words, and int32 splits, the number of words to
// or from each rank. The message of a rank to itself is not exchanged: its split is 0, and it follows the
// messages to the other ranks in the words that the rank sends.
//
// Between a process and ranks of which it is none, each message that arrives is a tensor of its own, without
// splits, and nothing is sent to oneself.
#ifndef SOK_SOK_OPS_KERNELS_EXCHANGE_TENSORS_H_
#define SOK_SOK_OPS_KERNELS_EXCHANGE_TENSORS_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/messages/message.h"
#include "sok_ops/kernels/group_inputs.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// An AllocateWords that allocates outputs 0 and 1 of a kernel: words and splits. `own` is the position of the
// message to oneself; kNoRank if there is none. Fails also if the words to others are more than INT32_MAX,
// the limit of an exchange.
class OutgoingWords {
 public:
  OutgoingWords(tensorflow::OpKernelContext* context, int own) : context_(context), own_(own) {}

  int64_t* operator()(Span<const int64_t> sizes);

 private:
  tensorflow::OpKernelContext* context_;
  int own_;
};

// Reads the messages to rank `rank` from a kernel's inputs `received`, `received_splits`, `sent` and
// `sent_splits`. They are valid as long as the inputs.
tensorflow::Status ReadInbox(tensorflow::OpKernelContext* context, int rank, Inbox* inbox);

// ReadTables for an op that answers messages. Aborted if they come from a worker of parameter servers and
// a table has no rows: the server was restarted, or its tables are being restored. A MonitoredTrainingSession
// makes its session again after this error, and waits for the tables.
tensorflow::Status ReadAnsweringTables(tensorflow::OpKernelContext* context, const std::vector<int64_t>& dims,
                                       GroupTables* tables);

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_EXCHANGE_TENSORS_H_
