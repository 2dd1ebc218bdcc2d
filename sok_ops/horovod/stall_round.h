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
  int64_t period_ms = 0;           // how long this rank would wait until the next round; 0: it has no watch
  bool stuck = false;              // it waits, and what it waits for has not changed for long
  std::vector<std::string> names;  // the exchanges that it waits for, in any order
};

// A rank's part of a round as words, and back. Decoding fails on words that Encode() did not make.
std::vector<int64_t> Encode(const Waiting& waiting);
StatusOr<Waiting> Decode(Span<const int64_t> words);

// Evaluates the states of all ranks, in order of rank, at one moment. FailedPrecondition, which says which
// rank waits for which exchange, if every rank is stuck and no exchange is awaited by all of them; otherwise
// OK. The same on every rank.
Status CheckForDeadlock(const std::vector<Waiting>& ranks);

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_STALL_ROUND_H_
