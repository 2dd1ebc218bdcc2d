// What the engine tells the sanitizers: weak symbols, null if their runtime is not linked. The engine itself
// is compiled without them, once for all builds.
//
// To ThreadSanitizer each CUDA thread and each stream is a thread of its own. They are ordered only by what
// orders them in CUDA, and not by the scheduler.
#ifndef SOK_CUDA_ON_HOST_ENGINE_SANITIZERS_H_
#define SOK_CUDA_ON_HOST_ENGINE_SANITIZERS_H_

#include <cstddef>

#define SOK_WEAK __attribute__((weak))
extern "C" {
SOK_WEAK void __asan_poison_memory_region(void const volatile* address, size_t bytes);
SOK_WEAK void __asan_unpoison_memory_region(void const volatile* address, size_t bytes);
SOK_WEAK void __sanitizer_start_switch_fiber(void** save, const void* bottom, size_t bytes);
SOK_WEAK void __sanitizer_finish_switch_fiber(void* saved, const void** old_bottom, size_t* old_bytes);
SOK_WEAK void* __tsan_get_current_fiber();
SOK_WEAK void* __tsan_create_fiber(unsigned flags);
SOK_WEAK void __tsan_destroy_fiber(void* fiber);
SOK_WEAK void __tsan_switch_to_fiber(void* fiber, unsigned flags);
SOK_WEAK void __tsan_acquire(void* address);
SOK_WEAK void __tsan_release(void* address);
}
#undef SOK_WEAK

namespace sok::on_host {

inline bool HasAsan() { return __asan_poison_memory_region != nullptr; }
inline bool HasTsan() { return __tsan_create_fiber != nullptr; }

// Marks bytes that only a mistake would touch.
inline void AsanPoison(const void* address, size_t bytes) {
  if (HasAsan() && bytes > 0) __asan_poison_memory_region(address, bytes);
}
inline void AsanUnpoison(const void* address, size_t bytes) {
  if (HasAsan() && bytes > 0) __asan_unpoison_memory_region(address, bytes);
}

// Everything before a release of an address is ordered before everything after its acquire.
class TsanOrder {
 public:
  void Release() {
    if (HasTsan()) __tsan_release(&address_);
  }
  void Acquire() {
    if (HasTsan()) __tsan_acquire(&address_);
  }

 private:
  char address_ = 0;
};

// Released when the calling host thread began, or first called this: ThreadSanitizer treats the variables of
// a thread as written then. Only once, because what the thread does later must not be ordered before what a
// kernel does.
inline TsanOrder& BirthOfThisThread() {
  static __thread TsanOrder birth;
  static __thread bool released;
  if (!released) birth.Release();
  released = true;
  return birth;
}

// A thread as ThreadSanitizer sees it. A null handle without ThreadSanitizer.
using TsanThread = void*;
inline TsanThread CreateTsanThread() { return HasTsan() ? __tsan_create_fiber(0) : nullptr; }
inline void DestroyTsanThread(TsanThread thread) {
  if (thread != nullptr) __tsan_destroy_fiber(thread);
}
inline TsanThread CurrentTsanThread() { return HasTsan() ? __tsan_get_current_fiber() : nullptr; }
// Continues as another thread. Orders nothing.
inline void SwitchTsanThread(TsanThread thread) {
  constexpr unsigned kOrdersNothing = 1;
  if (thread != nullptr) __tsan_switch_to_fiber(thread, kOrdersNothing);
}

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_SANITIZERS_H_
