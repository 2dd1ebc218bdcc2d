#ifndef SOK_CC_GROUP_LOWEST_ERROR_H_
#define SOK_CC_GROUP_LOWEST_ERROR_H_

#include <cstdint>
#include <mutex>

#include "cc/base/status.h"

namespace sok {

// The error with the lowest number among those of concurrent pieces of work. Thread-safe.
class LowestError {
 public:
  void Add(int64_t number, const Status& status) {
    if (status.ok()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!error_.ok() && number_ <= number) return;
    number_ = number;
    error_ = status;
  }
  // OK if there was none. Call it when all work is done.
  const Status& status() const { return error_; }

 private:
  std::mutex mutex_;
  int64_t number_ = 0;
  Status error_;
};

}  // namespace sok

#endif  // SOK_CC_GROUP_LOWEST_ERROR_H_
