#ifndef SOK_CC_BASE_OBJECT_POOL_H_
#define SOK_CC_BASE_OBJECT_POOL_H_

#include <memory>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"

namespace sok {

// A pool of working memory: a call takes an object and returns it, so that the next call reuses its
// allocations. Holds as many objects as were ever in use at the same time. Thread-safe.
template <typename T>
class ObjectPool {
 public:
  // An object that is in use. Returns it to the pool when destroyed. Must not outlive the pool.
  class Lease {
   public:
    Lease(ObjectPool* pool, std::unique_ptr<T> object) : pool_(pool), object_(std::move(object)) {}
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (object_ != nullptr) pool_->Return(std::move(object_));
    }
    T* get() const { return object_.get(); }
    T& operator*() const { return *object_; }
    T* operator->() const { return object_.get(); }

   private:
    ObjectPool* pool_;
    std::unique_ptr<T> object_;
  };

  // An idle object in the state in which its last user left it, or a new one.
  Lease Take() {
    {
      const MutexLock lock(mutex_);
      if (!idle_.empty()) {
        Lease lease(this, std::move(idle_.back()));
        idle_.pop_back();
        return lease;
      }
    }
    return Lease(this, std::make_unique<T>());
  }

 private:
  void Return(std::unique_ptr<T> object) {
    const MutexLock lock(mutex_);
    idle_.push_back(std::move(object));
  }

  Mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_ SOK_GUARDED_BY(mutex_);
};

// As pool->Take(), with shared ownership: the last owner returns the object, and keeps the pool alive until
// then.
template <typename T>
std::shared_ptr<T> TakeShared(const std::shared_ptr<ObjectPool<T>>& pool) {
  struct Held {
    std::shared_ptr<ObjectPool<T>> pool;
    typename ObjectPool<T>::Lease lease;
  };
  auto held = std::make_shared<Held>(Held{pool, pool->Take()});
  T* const object = held->lease.get();
  return std::shared_ptr<T>(std::move(held), object);
}

}  // namespace sok

#endif  // SOK_CC_BASE_OBJECT_POOL_H_
