#ifndef SOK_CC_BASE_LOWEST_ERROR_H_
#define SOK_CC_BASE_LOWEST_ERROR_H_

#include <cstdint>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/base/thread_annotations.h"

namespace sok {

// The error with the lowest number among those of concurrent pieces of work. Thread-safe.
class LowestError {
 public:
  void Add(int64_t number, const Status& status) {
    if (status.ok()) return;
    const MutexLock lock(mutex_);
    if (!error_.ok() && number_ <= number) return;
    number_ = number;
    error_ = status;
  }
  // OK if there was none. Call it when all work is done: it takes no lock.
  const Status& status() const SOK_NO_THREAD_SAFETY_ANALYSIS { return error_; }

 private:
  Mutex mutex_;
  int64_t number_ SOK_GUARDED_BY(mutex_) = 0;
  Status error_ SOK_GUARDED_BY(mutex_);
};

}  // namespace sok

#endif  // SOK_CC_BASE_LOWEST_ERROR_H_
