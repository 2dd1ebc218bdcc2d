#ifndef SOK_CC_BASE_FUNCTION_REF_H_
#define SOK_CC_BASE_FUNCTION_REF_H_

#include <memory>
#include <type_traits>
#include <utility>

namespace sok {

template <typename Signature>
class FunctionRef;

// A view of a callable, for parameters that are called before the function returns. Unlike std::function it
// never allocates; it must not outlive the callable.
template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, FunctionRef>>>
  FunctionRef(F&& f)  // NOLINT: implicit, so that lambdas can be passed
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace sok

#endif  // SOK_CC_BASE_FUNCTION_REF_H_
