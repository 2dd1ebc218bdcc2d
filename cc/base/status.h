#ifndef SOK_CC_BASE_STATUS_H_
#define SOK_CC_BASE_STATUS_H_

#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace sok {

// The codes carry TensorFlow's names, and sok_ops/ translates them one to one.
enum class StatusCode {
  kOk,
  kInvalidArgument,
  kFailedPrecondition,
  kResourceExhausted,
  kNotFound,
  kDataLoss,
  kUnimplemented,
  kInternal,
};

// The outcome of an operation on user input: OK, or a code and a message that names the variable and the
// value. Copyable; an OK status allocates nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : error_(std::make_shared<const Error>(Error{code, std::move(message)})) {}

  bool ok() const { return error_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : error_->code; }
  const std::string& message() const {
    static const std::string empty;
    return ok() ? empty : error_->message;
  }

 private:
  struct Error {
    StatusCode code;
    std::string message;
  };
  std::shared_ptr<const Error> error_;
};

inline Status OkStatus() { return Status(); }

// Concatenates its arguments, each written as `<<` writes it.
template <typename... Args>
std::string StrCat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

template <typename... Args>
Status InvalidArgument(const Args&... args) {
  return Status(StatusCode::kInvalidArgument, StrCat(args...));
}
template <typename... Args>
Status FailedPrecondition(const Args&... args) {
  return Status(StatusCode::kFailedPrecondition, StrCat(args...));
}
template <typename... Args>
Status ResourceExhausted(const Args&... args) {
  return Status(StatusCode::kResourceExhausted, StrCat(args...));
}
template <typename... Args>
Status NotFound(const Args&... args) {
  return Status(StatusCode::kNotFound, StrCat(args...));
}
template <typename... Args>
Status DataLoss(const Args&... args) {
  return Status(StatusCode::kDataLoss, StrCat(args...));
}
template <typename... Args>
Status Unimplemented(const Args&... args) {
  return Status(StatusCode::kUnimplemented, StrCat(args...));
}
template <typename... Args>
Status Internal(const Args&... args) {
  return Status(StatusCode::kInternal, StrCat(args...));
}

// A value, or the status that says why there is none.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(T value) : value_(std::move(value)) {}          // NOLINT: implicit, as callers return values
  StatusOr(Status status) : status_(std::move(status)) {}  // NOLINT: implicit, as callers return errors

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }              // only when ok()
  const T& value() const { return *value_; }  // only when ok()

 private:
  std::optional<T> value_;
  Status status_;
};

// Runs work(), which returns Status, and turns std::bad_alloc into ResourceExhausted and other exceptions of
// the standard library into Internal.
template <typename Work>
Status WithinMemory(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory");
  } catch (const std::exception& error) {
    return Internal(error.what());
  }
}

}  // namespace sok

#define SOK_RETURN_IF_ERROR(expr)              \
  do {                                         \
    ::sok::Status sok_status_ = (expr);        \
    if (!sok_status_.ok()) return sok_status_; \
  } while (false)

// SOK_ASSIGN_OR_RETURN(auto made, Make()) declares `made` with the value of a StatusOr, or returns its error.
// What is declared may also be something to assign to.
#define SOK_ASSIGN_OR_RETURN(declaration, ...) \
  SOK_ASSIGN_OR_RETURN_BY(SOK_CONCATENATED(sok_result_, __LINE__), declaration, __VA_ARGS__)
#define SOK_ASSIGN_OR_RETURN_BY(result, declaration, ...) \
  auto result = __VA_ARGS__;                              \
  if (!result.ok()) return result.status();               \
  declaration = std::move(result.value())
#define SOK_CONCATENATED(a, b) SOK_CONCATENATED_NOW(a, b)
#define SOK_CONCATENATED_NOW(a, b) a##b

#endif  // SOK_CC_BASE_STATUS_H_
