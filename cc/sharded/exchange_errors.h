// The errors of lookups over ranks that every engine has.
#ifndef SOK_CC_SHARDED_EXCHANGE_ERRORS_H_
#define SOK_CC_SHARDED_EXCHANGE_ERRORS_H_

#include <cstdint>

#include "cc/base/status.h"

namespace sok {

// `status`, which rank `rank` found.
inline Status OnRank(int rank, const Status& status) {
  return Status(status.code(), StrCat("On rank ", rank, ": ", status.message()));
}

// The error for a request of a table that counts lookups, with counts for some ids only.
inline Status WrongCounts(int64_t counts, int64_t ids) {
  return Internal("ranks sent ", counts, " counts for ", ids, " ids");
}

inline Status AnswerDoesNotFit(int rank, int64_t words, int64_t floats) {
  return Internal("rank ", rank, " answered a lookup with ", words, " words, but this rank requested ",
                  floats, " floats");
}

inline Status GradientsDoNotFit(int rank, int64_t words) {
  return Internal("rank ", rank, " sent ", words, " words of gradients, which do not fit its lookup");
}

inline Status GradientsOfAnotherStep(int rank) {
  return FailedPrecondition("rank ", rank, " sent the gradients of another step: after an error, the ranks' ",
                            "sessions do not run the same steps. Restart all ranks from a checkpoint");
}

// The later calls of a group need the results of successful earlier calls.
inline Status CheckRouted(int64_t routed, int64_t lookups) {
  if (routed == lookups) return OkStatus();
  return FailedPrecondition("this rank has routed ", routed, " of ", lookups, " lookups");
}
inline Status LookupHadAnError() {
  return FailedPrecondition("gradients arrived for a lookup that had an error");
}

}  // namespace sok

#endif  // SOK_CC_SHARDED_EXCHANGE_ERRORS_H_
