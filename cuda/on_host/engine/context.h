// Stacks that a thread switches between.
#ifndef SOK_CUDA_ON_HOST_ENGINE_CONTEXT_H_
#define SOK_CUDA_ON_HOST_ENGINE_CONTEXT_H_

#include <cstddef>

// Other processors, and builds with -DSOK_ON_HOST_UCONTEXT, use the system's functions, which are slower.
#if defined(__x86_64__) && !defined(SOK_ON_HOST_UCONTEXT)
#define SOK_ON_HOST_ASSEMBLY 1
#else
#include <ucontext.h>
#endif

namespace sok::on_host {

// Memory for a stack, with a page below it that is never mapped. Comes from a pool and returns to it, because
// a launch has many short threads.
class Stack {
 public:
  static Stack Take();
  void Return();
  static size_t bytes();
  char* bottom() const { return bottom_; }
  // Whether the address is in the page below.
  bool IsBelow(const void* address) const;

 private:
  explicit Stack(char* bottom) : bottom_(bottom) {}
  char* bottom_;
};

// The state of a thread when it left a stack.
class Context {
 public:
  // The first SwitchTo() to this context calls `entry`, which must not return, on the stack.
  void Prepare(const Stack& stack, void (*entry)());
  // Saves the caller's state in this context, and continues where `other` was left. Returns when something
  // switches back.
  void SwitchTo(Context* other);

 private:
#if defined(SOK_ON_HOST_ASSEMBLY)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_ = {};
#endif
};

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_CONTEXT_H_
