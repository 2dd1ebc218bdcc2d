#ifndef SOK_CC_BASE_MUTEX_H_
#define SOK_CC_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "cc/base/thread_annotations.h"

namespace sok {

// std::mutex as the thread-safety analysis sees it: the standard library's carries no annotations.
class SOK_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Named as the standard's locks expect.
  void lock() SOK_ACQUIRE() { mutex_.lock(); }
  void unlock() SOK_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex while it lives.
class SOK_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SOK_ACQUIRE(mutex) : mutex_(mutex) { mutex.lock(); }
  ~MutexLock() SOK_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable. It has no wait with a predicate: the analysis does not see which locks a function
// object is called with. Callers wait in a loop.
class CondVar {
 public:
  // Releases the mutex while it waits, and holds it again when it returns: after a notification, or without
  // one.
  void Wait(Mutex& mutex) SOK_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }

  // As Wait; false once the time has come.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point time) SOK_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool notified = changed_.wait_until(lock, time) == std::cv_status::no_timeout;
    lock.release();
    return notified;
  }

  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace sok

#endif  // SOK_CC_BASE_MUTEX_H_
