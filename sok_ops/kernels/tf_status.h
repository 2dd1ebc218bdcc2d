#ifndef SOK_SOK_OPS_KERNELS_TF_STATUS_H_
#define SOK_SOK_OPS_KERNELS_TF_STATUS_H_

#include <string>

#include "cc/base/printable.h"
#include "cc/base/status.h"
#include "sok_ops/kernels/tf_versions.h"

namespace sok {

// Converts the engine's status to TensorFlow's, with the same code. Makes the message printable, because it
// may quote names and paths with arbitrary bytes.
inline tensorflow::Status ToTf(const Status& status) {
  namespace errors = tensorflow::errors;
  const std::string message = Printable(status.message());
  switch (status.code()) {
    case StatusCode::kOk:
      return tensorflow::Status();
    case StatusCode::kInvalidArgument:
      return errors::InvalidArgument(message);
    case StatusCode::kFailedPrecondition:
      return errors::FailedPrecondition(message);
    case StatusCode::kResourceExhausted:
      return errors::ResourceExhausted(message);
    case StatusCode::kNotFound:
      return errors::NotFound(message);
    case StatusCode::kDataLoss:
      return errors::DataLoss(message);
    case StatusCode::kUnimplemented:
      return errors::Unimplemented(message);
    case StatusCode::kInternal:
      break;
  }
  return errors::Internal(message);
}

// Converts TensorFlow's status to the engine's. Only the codes below are kept; the others become Internal.
inline Status FromTf(const tensorflow::Status& status) {
  if (status.ok()) return OkStatus();
  const std::string message = MessageOf(status);
  namespace errors = tensorflow::errors;
  if (errors::IsInvalidArgument(status)) return InvalidArgument(message);
  if (errors::IsFailedPrecondition(status)) return FailedPrecondition(message);
  if (errors::IsResourceExhausted(status)) return ResourceExhausted(message);
  return Internal(message);
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_TF_STATUS_H_
