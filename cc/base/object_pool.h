#ifndef SOK_CC_BASE_OBJECT_POOL_H_
#define SOK_CC_BASE_OBJECT_POOL_H_

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace sok {

// Working memory that calls take and give back, so that one call finds what the last one allocated. Holds as
// many objects as were ever in use at once. Thread-safe.
template <typename T>
class ObjectPool {
 public:
  // An object of the pool in use; goes back when the lease ends. Must not outlive the pool.
  class Lease {
   public:
    Lease(ObjectPool* pool, std::unique_ptr<T> object) : pool_(pool), object_(std::move(object)) {}
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (object_ != nullptr) pool_->Return(std::move(object_));
    }
    T* get() const { return object_.get(); }
    T* operator->() const { return object_.get(); }

   private:
    ObjectPool* pool_;
    std::unique_ptr<T> object_;
  };

  // An object that nobody else uses, as its last user left it, or a new one.
  Lease Take() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
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
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(object));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;
};

// As pool->Take(), shared: the object goes back when its last owner lets go of it, and the pool lives until
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
