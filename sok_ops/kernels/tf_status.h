#ifndef SOK_SOK_OPS_KERNELS_TF_STATUS_H_
#define SOK_SOK_OPS_KERNELS_TF_STATUS_H_

#include <string>

#include "cc/base/status.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/status.h"

namespace sok {

// The engine's status as TensorFlow's, with the same code and message.
inline tensorflow::Status ToTf(const Status& status) {
  namespace errors = tensorflow::errors;
  switch (status.code()) {
    case StatusCode::kOk:
      return tensorflow::Status();
    case StatusCode::kInvalidArgument:
      return errors::InvalidArgument(status.message());
    case StatusCode::kFailedPrecondition:
      return errors::FailedPrecondition(status.message());
    case StatusCode::kResourceExhausted:
      return errors::ResourceExhausted(status.message());
    case StatusCode::kNotFound:
      return errors::NotFound(status.message());
    case StatusCode::kDataLoss:
      return errors::DataLoss(status.message());
    case StatusCode::kUnimplemented:
      return errors::Unimplemented(status.message());
    case StatusCode::kInternal:
      break;
  }
  return errors::Internal(status.message());
}

// TensorFlow's status as the engine's. Codes that the engine does not have become Internal.
inline Status FromTf(const tensorflow::Status& status) {
  if (status.ok()) return OkStatus();
  const std::string message(status.message());
  namespace errors = tensorflow::errors;
  if (errors::IsInvalidArgument(status)) return InvalidArgument(message);
  if (errors::IsFailedPrecondition(status)) return FailedPrecondition(message);
  if (errors::IsResourceExhausted(status)) return ResourceExhausted(message);
  return Internal(message);
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_TF_STATUS_H_
