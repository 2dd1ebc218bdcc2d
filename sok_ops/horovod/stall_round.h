#ifndef SOK_SOK_OPS_HOROVOD_STALL_ROUND_H_
#define SOK_SOK_OPS_HOROVOD_STALL_ROUND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

// What a rank reports to the others in a round of the stall watch (stall_watch.h).
struct Waiting {
  int64_t period_ms = 0;           // this rank's time between rounds; 0: no watch
  bool stuck = false;              // it waits, and no exchange has begun or ended for several rounds
  std::vector<std::string> names;  // the exchanges that it waits for, in any order
};

// Converts a rank's report to words, and back. Decode() fails on words that Encode() did not write.
std::vector<int64_t> Encode(const Waiting& waiting);
StatusOr<Waiting> Decode(Span<const int64_t> words);

// Checks the reports of all ranks of one round, in order of rank. FailedPrecondition if every rank is stuck
// and no exchange is awaited by all of them; the message says which rank waits for which exchange. OK
// otherwise. All ranks get the same result.
Status CheckForDeadlock(const std::vector<Waiting>& ranks);

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_STALL_ROUND_H_
