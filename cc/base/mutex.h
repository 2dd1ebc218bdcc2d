#ifndef SOK_CC_BASE_MUTEX_H_
#define SOK_CC_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

// Annotations that clang's thread-safety analysis (-Wthread-safety) checks: which mutex guards a member, and
// which mutexes a function acquires, releases or needs. Other compilers ignore them. tools/lint.sh runs the
// analysis.
#if defined(__clang__)
#define SOK_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SOK_THREAD_ANNOTATION(x)
#endif

// For classes: a lock, and an object that holds a lock while it lives.
#define SOK_CAPABILITY(name) SOK_THREAD_ANNOTATION(capability(name))
#define SOK_SCOPED_CAPABILITY SOK_THREAD_ANNOTATION(scoped_lockable)

// For members: read and written with the mutex held.
#define SOK_GUARDED_BY(mutex) SOK_THREAD_ANNOTATION(guarded_by(mutex))

// For functions: must be called with the mutexes held, or without them.
#define SOK_REQUIRES(...) SOK_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define SOK_EXCLUDES(...) SOK_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

// For functions that acquire or release the mutexes, or return a reference to one.
#define SOK_ACQUIRE(...) SOK_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define SOK_RELEASE(...) SOK_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define SOK_RETURN_CAPABILITY(mutex) SOK_THREAD_ANNOTATION(lock_returned(mutex))

// For functions whose locking the analysis cannot follow; a comment gives the reason.
#define SOK_NO_THREAD_SAFETY_ANALYSIS SOK_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace sok {

// A std::mutex with the annotations of the thread-safety analysis, which the standard library lacks.
class SOK_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // The names that the standard's lock classes call.
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

// A condition variable. Callers wait in a loop: a wait with a predicate is not offered, because the analysis
// does not know which locks are held while a function object runs.
class CondVar {
 public:
  // Releases the mutex while it waits, and acquires it again before it returns. May return without a
  // notification.
  void Wait(Mutex& mutex) SOK_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }

  // Like Wait, but also returns when `time` has passed, and then returns false.
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
